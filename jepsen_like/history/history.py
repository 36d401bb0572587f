"""A history: its header and its operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.history.header import Header
from jepsen_like.history.operation import Operation


@dataclass(frozen=True)
class History:
    """Operations in the order of their calls, as read from one file.

    `timed` says whether the events carried times; otherwise all times are 0 and only the order of
    the lines is known.
    """

    operations: Sequence[Operation]
    header: Header = field(default_factory=Header)
    name: str = "history"
    timed: bool = True

    def unreadable(self, line: int | None, problem: str) -> HistoryUnreadable:
        """Return an error about a line of this history."""
        return HistoryUnreadable(self.name, line, problem)
