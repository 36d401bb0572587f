"""The directory of `dledger-mq up`: the plan of its groups and nodes, and the process ids."""

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

from dledger_mq.clusters.certificate_folder import NAMESERVER, CertificateFolder
from dledger_mq.errors import GroupDirectoryError
from remoting.net.access_file import read_credentials
from remoting.net.tls_config import Tls
from remoting.wire.signature import Credentials

_FORMAT: Final = "dledger-mq group 2"
_ONE_GROUP: Final = "dledger-mq group 1"  # the format of earlier versions
_PLAN_FILE: Final = "group.json"
_LOCK_FILE: Final = "up.lock"

# Each member has ports of its own on this machine; more than a handful is of no use here.
MAX_NODES: Final = 9

# Each group takes one process for each node.
MAX_GROUPS: Final = 9


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One broker process.

    Attributes:
        name: "n0", "n1" and so on.
        peer_address: where its group reaches it.
        client_address: where clients reach this member and no other.
    """

    name: str
    peer_address: str
    client_address: str


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group of brokers.

    Attributes:
        name: the group's name, which clients see as the broker name.
        address: where clients reach the leader, whichever node that is; None in directories of
            earlier versions, and for one node.
        preferred: the node that should lead, or None.
    """

    name: str
    nodes: tuple[NodePlan, ...]
    address: str | None = None
    preferred: str | None = None

    @property
    def peers(self) -> str:
        """The members in the form of `python -m broker --peers`."""
        return ",".join(f"{node.name}={node.peer_address}" for node in self.nodes)


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What `up` starts. It never changes during the life of the directory.

    Attributes:
        nameserver: where the name server listens.
        groups: the groups of brokers. Node names are unique in the cluster.
        tls: the folder of certificates; None for plain connections.
        access: the file of access control; None without it.
        grpc: where the proxy listens for clients of RocketMQ 5; None: there is none.
    """

    cluster: str
    nameserver: str
    groups: tuple[GroupPlan, ...]
    tls: CertificateFolder | None = None
    access: Path | None = None
    grpc: str | None = None

    def credentials(self) -> Credentials | None:
        """Return the administrator, if there is access control. Raises AccessFileUnusable."""
        return None if self.access is None else read_credentials(self.access)

    def security_options(self, name: str) -> tuple[str, ...]:
        """Return the options of a server, by its name, about TLS and access control."""
        tls = () if self.tls is None else self.tls.server_options(name)
        return tls if self.access is None else (*tls, "--access", str(self.access))

    def proxy_options(self) -> tuple[str, ...]:
        """Return the options of the proxy about TLS and access control, on both of its sides."""
        options: tuple[str, ...] = ()
        if self.tls is not None:
            options += (*self.tls.server_options(NAMESERVER), *self.tls.proxy_options())
        return options if self.access is None else (*options, "--credentials", str(self.access))

    @property
    def client_tls(self) -> Tls | None:
        return None if self.tls is None else self.tls.client()

    @property
    def nodes(self) -> tuple[NodePlan, ...]:
        return tuple(node for group in self.groups for node in group.nodes)


@dataclass(slots=True)
class GroupDirectory:
    path: Path
    _lock: TextIO | None = field(default=None, init=False)

    def node_path(self, name: str) -> Path:
        return self.path / name

    def is_unborn(self, group: GroupPlan) -> bool:
        """Return whether no node of a group has ever had files here."""
        return not any(self.node_path(node.name).exists() for node in group.nodes)

    def log_path(self, name: str) -> Path:
        """Return the file that receives the standard error of a process."""
        return self.path / f"{name}.log"

    def lock(self) -> None:
        """Create the directory, and lock it until `unlock` or the end of this process.

        Raises:
            GroupDirectoryError: another `up` has locked it, it holds something else, or it cannot
                be written.
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
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def read_pids(self) -> dict[str, int]:
        """Return the ids of the running processes, by node name or "nameserver".

        Raises:
            GroupDirectoryError: the file cannot be read.
        """
        content = self._read()
        try:
            return {} if content is None else {n: int(pid) for n, pid in content["pids"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._broken(error) from None

    def read_plan(self) -> ClusterPlan | None:
        """Return the plan of the directory, or None if it has none yet.

        Raises:
            GroupDirectoryError: the file cannot be read.
        """
        content = self._read()
        if content is None:
            return None
        try:
            groups = [content] if content["format"] == _ONE_GROUP else content["groups"]
            if not groups or not all(group["nodes"] for group in groups):
                raise ValueError("a group without a node")
            return ClusterPlan(
                str(content["cluster"]),
                str(content["nameserver"]),
                tuple(_read_group(group) for group in groups),
                CertificateFolder(Path(folder)) if (folder := content.get("tls")) else None,
                Path(file) if (file := content.get("access")) else None,
                str(address) if (address := content.get("grpc")) else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._broken(error) from None

    def write(self, plan: ClusterPlan, pids: Mapping[str, int]) -> None:
        """Replace the plan, and the ids of the running processes. Raises OSError."""
        content: dict[str, Any] = {
            "format": _FORMAT,
            "cluster": plan.cluster,
            "nameserver": plan.nameserver,
            "groups": [_group_members(group) for group in plan.groups],
            "pids": dict(pids),
        }
        if plan.tls is not None:
            content["tls"] = str(plan.tls.path)
        if plan.access is not None:
            content["access"] = str(plan.access)
        if plan.grpc is not None:
            content["grpc"] = plan.grpc
        beside = self.path / (_PLAN_FILE + ".new")
        beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        os.replace(beside, self._plan_path)

    @property
    def _plan_path(self) -> Path:
        return self.path / _PLAN_FILE

    def _read(self) -> dict[str, Any] | None:
        try:
            content = json.loads(self._plan_path.read_text(encoding="utf-8"))
            if content["format"] not in (_FORMAT, _ONE_GROUP):
                raise GroupDirectoryError(
                    str(self.path), f"its format {content['format']!r:.40} is not this version's"
                )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._broken(error) from None
        return dict(content)

    def _broken(self, error: Exception) -> GroupDirectoryError:
        return GroupDirectoryError(
            str(self.path),
            f"{_PLAN_FILE} cannot be read ({type(error).__name__}: {error}); "
            "restore it, or choose another directory",
        )


def _group_members(group: GroupPlan) -> dict[str, Any]:
    return {
        "group": group.name,
        "address": group.address,
        "preferred": group.preferred,
        "nodes": [
            {"name": node.name, "peer": node.peer_address, "client": node.client_address}
            for node in group.nodes
        ],
    }


def _read_group(members: dict[str, Any]) -> GroupPlan:
    """Raises KeyError, TypeError."""
    address, preferred = members.get("address"), members.get("preferred")
    return GroupPlan(
        str(members["group"]),
        tuple(
            NodePlan(str(node["name"]), str(node["peer"]), str(node["client"]))
            for node in members["nodes"]
        ),
        None if address is None else str(address),
        None if preferred is None else str(preferred),
    )
