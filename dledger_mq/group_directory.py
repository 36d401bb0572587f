"""The directory of `dledger-mq up`: which nodes a group has, on which ports, under which pids."""

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

from dledger_mq.errors import GroupDirectoryError

_FORMAT: Final = "dledger-mq group 1"
_PLAN_FILE: Final = "group.json"
_LOCK_FILE: Final = "up.lock"

# Raft needs each member on its own port of this machine; more than a handful has no use here.
MAX_NODES: Final = 9


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One broker process.

    Attributes:
        name: "n0", "n1" and so on.
        peer_address: where its group reaches it.
        client_address: where clients reach it, and no other member.
    """

    name: str
    peer_address: str
    client_address: str


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What `up` starts. It stays the same for the life of the directory.

    Attributes:
        cluster: the cluster's name.
        group: the group's name, which is the broker name clients see.
        nameserver: where the name server listens.
        nodes: the brokers.
        group_address: where clients reach the leader, whichever node that is; None in directories
            of earlier versions, and for one node.
    """

    cluster: str
    group: str
    nameserver: str
    nodes: tuple[NodePlan, ...]
    group_address: str | None = None

    @property
    def peers(self) -> str:
        """The members as `python -m broker` takes them."""
        return ",".join(f"{node.name}={node.peer_address}" for node in self.nodes)


@dataclass(slots=True)
class GroupDirectory:
    """The directory of one group.

    Args:
        path: the directory.
    """

    path: Path
    _lock: TextIO | None = field(default=None, init=False)

    def node_path(self, name: str) -> Path:
        """Where a node keeps its data."""
        return self.path / name

    def log_path(self, name: str) -> Path:
        """Where what a process says of errors goes."""
        return self.path / f"{name}.log"

    def lock(self) -> None:
        """Make the directory, and hold it until `unlock` or the end of this process.

        Raises:
            GroupDirectoryError: another `up` holds it, it holds something else, or it cannot be
                written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not self._plan_path.exists() and any(
                entry.name != _LOCK_FILE for entry in self.path.iterdir()
            ):
                raise GroupDirectoryError(
                    str(self.path), "it holds other files and no group; choose an empty directory"
                )
            with ExitStack() as stack:
                lock = stack.enter_context((self.path / _LOCK_FILE).open("w", encoding="utf-8"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stack.pop_all()
                self._lock = lock
        except BlockingIOError:
            raise GroupDirectoryError(
                str(self.path), "a group already runs from it; stop that one, or choose another"
            ) from None
        except OSError as error:
            raise GroupDirectoryError(
                str(self.path), f"it cannot be used ({error.strerror}); choose another"
            ) from None

    def unlock(self) -> None:
        """Let others use the directory."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def read_pids(self) -> dict[str, int]:
        """The processes that run, by node name; "nameserver" is one of them.

        Raises:
            GroupDirectoryError: the file cannot be read.
        """
        content = self._read()
        try:
            return {} if content is None else {n: int(pid) for n, pid in content["pids"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._broken(error) from None

    def read_plan(self) -> GroupPlan | None:
        """The group of the directory, or None when there is none yet.

        Raises:
            GroupDirectoryError: the file cannot be read.
        """
        content = self._read()
        if content is None:
            return None
        try:
            return GroupPlan(
                str(content["cluster"]),
                str(content["group"]),
                str(content["nameserver"]),
                tuple(
                    NodePlan(str(node["name"]), str(node["peer"]), str(node["client"]))
                    for node in content["nodes"]
                ),
                None if (at := content.get("group_address")) is None else str(at),
            )
        except (KeyError, TypeError) as error:
            raise self._broken(error) from None

    def write(self, plan: GroupPlan, pids: Mapping[str, int]) -> None:
        """Replace the file: the plan, and the processes that run now by node name.

        Raises:
            OSError: it cannot be written.
        """
        content = {
            "format": _FORMAT,
            "cluster": plan.cluster,
            "group": plan.group,
            "nameserver": plan.nameserver,
            "group_address": plan.group_address,
            "nodes": [
                {"name": node.name, "peer": node.peer_address, "client": node.client_address}
                for node in plan.nodes
            ],
            "pids": dict(pids),
        }
        beside = self.path / (_PLAN_FILE + ".new")
        beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        os.replace(beside, self._plan_path)

    @property
    def _plan_path(self) -> Path:
        return self.path / _PLAN_FILE

    def _read(self) -> dict[str, Any] | None:
        try:
            content = json.loads(self._plan_path.read_text(encoding="utf-8"))
            if content["format"] != _FORMAT:
                raise GroupDirectoryError(
                    str(self.path), f"its format {content['format']!r:.40} is not this version's"
                )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._broken(error) from None
        return dict(content)

    def _broken(self, error: Exception) -> GroupDirectoryError:
        return GroupDirectoryError(
            str(self.path),
            f"{_PLAN_FILE} cannot be read ({type(error).__name__}: {error}); "
            "restore it, or choose another directory",
        )
