"""A member's log that reports every write to the invariants."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.core.entry_handler import Accepted, NoopEntry, Restart, Truncation, Write
from dledger.entry import Body, Magic
from dledger.node.turn import WritesLog
from dledger.store.segment_store import SegmentStore
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.invariants import Invariants
from jepsen_like.simulation.virtual_syncs import VirtualSyncs
from jepsen_like.simulation.written_log import log_changes


class WatchedLog:
    """Passes writes on to a log, and reports them.

    `awaited` returns the last entry of the snapshot after which the log begins again.
    """

    def __init__(
        self,
        name: str,
        log: WritesLog,
        store: SegmentStore,
        syncs: VirtualSyncs,
        segment_bytes: int,
        awaited: Callable[[], int],
        committed: Callable[[], int],
        invariants: Invariants,
        coverage: Coverage,
    ) -> None:
        self._name = name
        self._log = log
        self._store = store
        self._syncs = syncs
        self._segment_bytes = segment_bytes
        self._awaited = awaited
        self._committed = committed
        self._invariants = invariants
        self._coverage = coverage

    def carry_out(self, write: Write) -> None:
        store, before = self._store, self._store.last_index
        segment = store.end_pos // self._segment_bytes
        if isinstance(write, Restart):
            # No sync runs now: it would have seen the old log, and the store would refuse.
            self._syncs.limit = write.begin.before_index
            self._invariants.restarting(self._name, write.begin, self._awaited())
        elif isinstance(write, Truncation):
            self._coverage.count("truncations")
            self._invariants.truncated(self._name, write.index)
            self._syncs.limit = min(self._syncs.limit, write.index)
        elif isinstance(write, Accepted):
            self._coverage.count("resent pushes cut", write.first > write.push.prev_index + 1)
        else:
            if isinstance(write, NoopEntry):  # the first entry of a leader's term
                self._invariants.elected(self._name, write.term, self._committed())
            self._invariants.created(self._name, write.term, write.index)
        self._log.carry_out(write)
        if isinstance(write, Restart):
            self._invariants.restarted(self._name)
        elif not isinstance(write, Truncation):
            first = write.first if isinstance(write, Accepted) else before + 1
            self._tell_written(first, segment)

    def append(self, term: int, magic: Magic, bodies: Sequence[Body], first: int) -> int:
        self._invariants.created(self._name, term, first)
        segment = self._store.end_pos // self._segment_bytes
        last = self._log.append(term, magic, bodies, first)
        self._tell_written(first, segment)
        return last

    def _tell_written(self, first: int, segment: int) -> None:
        store = self._store
        self._coverage.count("segment rolls", store.end_pos // self._segment_bytes > segment)
        indexes = range(first, store.last_index + 1)
        chains = [(store.term_at(at), store.chain_at(at)) for at in indexes]
        changes = log_changes(store, first, store.last_index)
        self._invariants.written(self._name, first, chains, changes)
        self._syncs.written(store.last_index)
