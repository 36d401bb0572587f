"""What the application puts on top of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dledger.entry import Entry


class StateMachine(Protocol):
    """Folds committed entries into a state, the same on every member."""

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Apply a run of committed entries in log order; one result for each.

        Called in the node's trio thread, and again from the log's beginning after a restart. Must
        be deterministic: no clock, no randomness, no input but the entries. It must not raise:
        what an entry asks for and cannot be done is a result, the same on every member. Raising
        stops the node (MachineFailed).
        """
        ...


class LogOnly:
    """A state machine without a state, for those who want nothing but the log."""

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """No result for any entry."""
        return [None] * len(entries)
