"""Checks the log of a running node again and again, a little at a time.

A disk may return wrong bytes long after the write. The damage should be found before another member
needs the entry to repair its own log.
"""

from __future__ import annotations

from typing import NamedTuple

from dledger.entry import BEFORE_FIRST_INDEX, NO_TERM
from dledger.errors import BatchInvalid
from dledger.store.batch import verify_batch
from dledger.store.log_store import LogStore


class ScrubStatus(NamedTuple):
    """The progress of this pass, the number of finished passes, and the first damage found."""

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
        return ScrubStatus(self._last, self._passes, self._damage)

    def step(self, committed: int, max_bytes: int) -> int:
        """Check the next entries, at most up to `committed`; return their size in bytes.

        0 means that this pass has ended and the next call begins another. Pages in the page cache
        are checked there, not on the disk. The check goes on after damage.
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
