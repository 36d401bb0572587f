"""A history: its header and its operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Map, Value

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Header:
    """The first line of a history; all fields are optional except the format's version.

    `model` names the checker; `seed` that of the run. `settings` are all fields, and those of
    checkers among them, such as `initial` and `total`: docs/checkers.md names them.
    """

    workload: str | None = None
    model: str | None = None
    seed: int | None = None
    settings: Map = field(default_factory=Map)

    def setting(self, name: str, default: Value = None) -> Value:
        """A field by its name."""
        return self.settings.get(name, default)


@dataclass(frozen=True)
class History:
    """Operations in the order of their calls, as read from one file.

    `timed` says whether the events carried times; without, all times are 0 and only the order of
    the lines is known.
    """

    operations: Sequence[Operation]
    header: Header = field(default_factory=Header)
    name: str = "history"
    timed: bool = True

    def unreadable(self, line: int | None, problem: str) -> HistoryUnreadable:
        """An error about a line of this history, to be raised."""
        return HistoryUnreadable(self.name, line, problem)
