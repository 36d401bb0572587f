"""The age of the applied state, as known from a leader's heartbeats."""

from __future__ import annotations

from typing import NamedTuple

from dledger.core.ledger_view import LedgerView
from dledger.core.patience import Patience

_NEVER = float("-inf")


class _Told(NamedTuple):
    at: float  # true time
    committed: int
    term: int


class Freshness:
    """Remembers the last heartbeat whose whole commit index is applied here.

    The heartbeat of a leader that has not committed in its own term proves nothing: its predecessor
    may have committed more than it knows.
    """

    __slots__ = ("_as_of", "_patience", "_told", "_view")

    def __init__(self, view: LedgerView, patience: Patience) -> None:
        self._view = view
        self._patience = patience
        self._as_of = _NEVER
        self._told: _Told | None = None

    def heard(self, committed: int, term: int, applied: int, at: float) -> None:
        """Note that the leader of `term` had committed `committed` at time `at`, and that this
        member has applied `applied`.
        """
        self.as_of(applied)
        if self._told is None or self._told.term < term:
            self._told = _Told(self._patience.true(at), committed, term)

    def as_of(self, applied: int) -> float:
        """Return the true time, by this member's clock, as of which the state after entry `applied`
        includes everything committed; minus infinity if unknown.
        """
        told = self._told
        if told is not None and applied >= told.committed:
            self._told = None
            if self._view.term_at(told.committed) == told.term:
                self._as_of = max(self._as_of, told.at)
        return self._as_of
