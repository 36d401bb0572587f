"""Entries on their way to the state machine: those written last are not read back."""

from __future__ import annotations

from collections import deque

from dledger.entry import Entry, decode_entries
from dledger.store.log_store import LogStore

# Entries that wait for their commitment are in memory anyway: in the sender's hands, or in a
# push. Beyond this the disk's cache holds them cheaper than Python does.
MAX_CACHED_BYTES = 16 * 1024 * 1024
MAX_CACHED_ENTRIES = 65_536

# What is handed out at once. Between two such runs the node's other tasks have their turn.
MAX_RUN_ENTRIES = 1024
MAX_READ_BYTES = 256 * 1024


class EntryCache:
    """The entries behind the last one handed out, as far as they fit; the store has the rest."""

    __slots__ = ("_bytes", "_count", "_runs", "_store")

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._runs: deque[list[Entry]] = deque()
        self._bytes = 0
        self._count = 0

    def add(self, entries: list[Entry]) -> None:
        """These were written at the log's end. The cache leaves them out if it is full."""
        size = _bytes_of(entries)
        if (
            self._bytes + size <= MAX_CACHED_BYTES
            and self._count + len(entries) <= MAX_CACHED_ENTRIES
        ):
            self._runs.append(entries)
            self._bytes += size
            self._count += len(entries)

    def forget(self) -> None:
        """The log was cut: what is kept may be no part of it any more."""
        self._runs.clear()
        self._bytes = self._count = 0

    def take(self, first: int, last: int) -> list[Entry]:
        """At least one of the entries first..last, from `first`; those before are not kept on."""
        runs = self._runs
        while runs and runs[0][-1].index < first:
            passed = runs.popleft()
            self._bytes -= _bytes_of(passed)
            self._count -= len(passed)
        if not runs:
            return self._read(first, last)
        if runs[0][0].index > first:
            return self._read(first, min(last, runs[0][0].index - 1))
        last = min(last, first + MAX_RUN_ENTRIES - 1)
        taken: list[Entry] = []
        for run in runs:
            begin = first + len(taken) - run[0].index
            if begin < 0:
                break  # some were left out here
            taken += run[begin : last + 1 - run[0].index]
            if taken[-1].index == last:
                break
        return taken

    def _read(self, first: int, last: int) -> list[Entry]:
        return decode_entries(self._store.read(first, last, MAX_READ_BYTES))


def _bytes_of(entries: list[Entry]) -> int:
    return entries[-1].pos - entries[0].pos + len(entries[-1].body)
