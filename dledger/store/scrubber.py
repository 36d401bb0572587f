"""Checks the log of a running node again and again, a little at a time.

A disk may return other bytes than it was given, long after the write. Whoever reads such an entry
first should not be the member that needs it to mend another's log.
"""

from __future__ import annotations

from typing import NamedTuple

from dledger.entry import BEFORE_FIRST_INDEX, NO_TERM
from dledger.errors import BatchInvalid
from dledger.store.batch import verify_batch
from dledger.store.log_store import LogStore


class ScrubStatus(NamedTuple):
    """How far the present pass is, how many passes ended, and what was found wrong first."""

    checked_through: int
    passes: int
    damage: str | None


class Scrubber:
    """Reads committed entries in the order of their indexes, and checks every sum."""

    __slots__ = ("_chain", "_damage", "_last", "_passes", "_store", "_term")

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._passes = 0
        self._damage: str | None = None
        self._last = BEFORE_FIRST_INDEX
        self._chain: int | None = None
        self._term = NO_TERM
        self._begin()

    @property
    def status(self) -> ScrubStatus:
        """What was found so far."""
        return ScrubStatus(self._last, self._passes, self._damage)

    def step(self, committed: int, max_bytes: int) -> int:
        """Check the next entries, at most up to `committed`; how many bytes they have.

        0 means that this pass ended and the next call begins another. What lies in the page cache
        is checked as it lies there. Behind damage the check goes on.
        """
        store = self._store
        if self._last + 1 < store.first_index:
            self._begin()  # the log's beginning was dropped meanwhile
        first = self._last + 1
        if first > committed:
            self._passes += 1
            self._begin()
            return 0
        last, raw = store.read_unchecked(first, committed, max_bytes)
        try:
            facts = verify_batch(raw, first, self._chain, self._term)
        except BatchInvalid as error:
            self._damage = self._damage or error.problem
            self._last, self._chain, self._term = last, None, NO_TERM
            return len(raw)
        self._last, self._chain = facts.last_index, facts.last_chain
        self._term = facts.term_runs[-1].term
        return len(raw)

    def _begin(self) -> None:
        first = self._store.first_index
        self._last = first - 1
        self._chain = 0 if first == BEFORE_FIRST_INDEX + 1 else None
        self._term = NO_TERM
