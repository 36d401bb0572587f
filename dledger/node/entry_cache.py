"""Keeps the entries written last for the state machine, so that they are not read back."""

from __future__ import annotations

from collections import deque

from dledger.entry_run import EntryRun, decode_run, joined
from dledger.store.log_store import LogStore

# Uncommitted entries are in memory anyway, in a submission or a push. Beyond this size the page
# cache holds them at less cost than Python objects.
MAX_CACHED_BYTES = 16 * 1024 * 1024
MAX_CACHED_ENTRIES = 65_536

# The most that `take` returns. The node's other tasks run between two such runs.
MAX_RUN_ENTRIES = 1024
MAX_READ_BYTES = 256 * 1024


class EntryCache:
    """The entries after the last one taken, as many as fit; the store has the rest."""

    __slots__ = ("_bytes", "_count", "_runs", "_store")

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._runs: deque[EntryRun] = deque()
        self._bytes = 0
        self._count = 0

    def add(self, run: EntryRun) -> None:
        """Keep entries that were written at the log's end, unless the cache is full."""
        size = run.log_bytes
        if self._bytes + size <= MAX_CACHED_BYTES and self._count + len(run) <= MAX_CACHED_ENTRIES:
            self._runs.append(run)
            self._bytes += size
            self._count += len(run)

    def forget(self) -> None:
        """Drop everything kept: the log was cut."""
        self._runs.clear()
        self._bytes = self._count = 0

    def take(self, first: int, last: int) -> EntryRun:
        """At least one of the entries first..last, from `first`; earlier ones are forgotten."""
        runs = self._runs
        held = -1  # the last entry of the first run
        while runs and (held := runs[0].last) < first:
            passed = runs.popleft()
            self._bytes -= passed.log_bytes
            self._count -= len(passed)
        if not runs:
            return self._read(first, last)
        if runs[0].first > first:
            return self._read(first, min(last, runs[0].first - 1))
        last = min(last, first + MAX_RUN_ENTRIES - 1)
        if last <= held:
            return runs[0].part(first - runs[0].first, last + 1 - runs[0].first)
        term, magic = runs[0].term, runs[0].magic
        taken: list[EntryRun] = []
        next_wanted = first
        for run in runs:
            if run.first > next_wanted or run.term != term or run.magic != magic:
                break  # a gap, or entries of another term or kind
            part = run.part(next_wanted - run.first, last + 1 - run.first)
            taken.append(part)
            next_wanted = part.last + 1
            if next_wanted > last:
                break
        return joined(taken)

    def _read(self, first: int, last: int) -> EntryRun:
        return decode_run(self._store.read(first, last, MAX_READ_BYTES))
