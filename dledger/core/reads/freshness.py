"""How old the applied state may be, as far as a leader's heartbeats tell."""

from __future__ import annotations

from typing import NamedTuple

from dledger.core.ledger_view import LedgerView

_NEVER = float("-inf")


class _Told(NamedTuple):
    at: float
    committed: int
    term: int


class Freshness:
    """Remembers the last heartbeat whose whole commit index is applied here.

    A heartbeat of a leader that has not committed in its own term tells nothing: its predecessor
    may have committed more than it knows.
    """

    __slots__ = ("_as_of", "_told", "_view")

    def __init__(self, view: LedgerView) -> None:
        self._view = view
        self._as_of = _NEVER
        self._told: _Told | None = None

    def heard(self, committed: int, term: int, applied: int, at: float) -> None:
        """The leader of `term` had committed so much at `at`; this member has `applied`."""
        self.as_of(applied)
        if self._told is None or self._told.term < term:
            self._told = _Told(at, committed, term)

    def as_of(self, applied: int) -> float:
        """The state includes all that was committed then, by this member's clock."""
        told = self._told
        if told is not None and applied >= told.committed:
            self._told = None
            if self._view.term_at(told.committed) == told.term:
                self._as_of = max(self._as_of, told.at)
        return self._as_of
