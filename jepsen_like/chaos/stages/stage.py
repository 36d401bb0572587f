"""The interface of the subject of a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from jepsen_like.chaos.brokers.security_files import SecurityFiles
from jepsen_like.chaos.plan import RunPlan
from jepsen_like.chaos.wiring import Wiring


class Setting(NamedTuple):
    """The run that a stage is for, with the members that begin the group, and those that may join
    it.

    The history calls the reading `begin_ns` of the monotonic clock 0.
    """

    plan: RunPlan
    folder: Path
    names: Sequence[str]
    spares: Sequence[str]
    begin_ns: int


class Stage(Protocol):
    """The processes of a run and how they are judged.

    `group` is the name of the group. `model_name` is the promise of the history, None if nothing is
    promised, and `allowed` are kinds of problems that do not count. `has_invariant` says that
    members have an invariant to check; `can_join` that members can be added; `clients_come_back`
    that clients may be killed and started again. Of the clients, `readers` come first, then
    `writers`; process numbers that differ by a multiple of `step` are the same client.
    `security` are the files of certificates and users, which the run makes.
    """

    group: str
    model_name: str | None
    allowed: tuple[str, ...]
    has_invariant: bool
    can_join: bool
    clients_come_back: bool
    readers: int
    writers: int
    step: int
    security: SecurityFiles | None

    @property
    def hosts(self) -> Sequence[str]:
        """Hosts besides those of members and clients."""

    def member_command(self, wiring: Wiring, name: str, *, joining: bool) -> list[str]:
        """Return the command that starts a member. Its settings are written beside its log."""

    def client_command(self, wiring: Wiring) -> list[str]: ...

    def beside_commands(self, wiring: Wiring) -> Mapping[str, list[str]]:
        """Return the commands that start the processes beside the group, by the names of their
        logs.
        """


def command_with(
    settings: Mapping[str, object], path: Path, wiring: Wiring, host: str, module: str
) -> list[str]:
    """Return the command that starts a module on a host; its settings are written to `path`."""
    path.write_text(json.dumps(settings, indent=1) + "\n")
    return wiring.command(host, [sys.executable, "-m", module, str(path)])
