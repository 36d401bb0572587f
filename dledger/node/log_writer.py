"""Writes the decisions of the replica to the store: pushes, truncations, no-ops, proposals.

The newest entries stay in memory: as bytes for the pushes to other members, and as entries for the
state machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dledger.core.entry_handler import (
    Accepted,
    ConfigurationEntry,
    NoopEntry,
    Restart,
    Truncation,
    Write,
)
from dledger.core.messages import PushRequest
from dledger.entry import Body, Magic
from dledger.entry_run import EntryRun, decode_run, joined
from dledger.errors import DiskFailed, DiskFull, InvariantBroken
from dledger.store.batch import BatchFacts, verify_batch
from dledger.store.index_unit import UNIT, UNIT_BYTES
from dledger.store.log_store import LogStore

# Pushes kept for the other peers, which usually need the same ones in the same turn.
_KEPT_BATCHES = 4

# Bytes of newest entries kept until they were sent to all peers. Older entries are read back for a
# peer that is further behind, and the other peers do not wait for it.
MAX_NEWEST_BYTES = 8 * 1024 * 1024


class _Placed(NamedTuple):
    run: EntryRun
    raw: bytes


class Batches:
    """Cuts the log into pushes, and keeps their bytes for all peers: a BatchSizer over the store.

    The newest entries are kept as the leader wrote them. A leader under load cuts its pushes at
    other places than its proposals: entries that gathered while a window was full go in one push,
    and a long proposal in several. Reading such entries back, with all their checksums, took a
    quarter of the leader's time.
    """

    __slots__ = ("_firsts", "_kept", "_max_bytes", "_newest", "_newest_bytes", "_store")

    def __init__(self, store: LogStore, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._kept: OrderedDict[int, tuple[int, bytes]] = OrderedDict()
        # Proposals without a gap between them in one segment, and the first index of each.
        self._newest: list[_Placed] = []
        self._firsts: list[int] = []
        self._newest_bytes = 0

    def batch_end(self, first: int, last: int) -> int:
        kept = self._kept.get(first)
        # Reuse a small push only if no more entries could go with it.
        if kept is not None and (
            kept[0] == last or (kept[0] < last and 2 * len(kept[1]) > self._max_bytes)
        ):
            return kept[0]
        end, raw = self._cut(first, last) or self._store.read_run(first, last, self._max_bytes)
        self._kept[first] = (end, raw)
        if len(self._kept) > _KEPT_BATCHES:
            self._kept.popitem(last=False)
        return end

    def batch_weight(self, first: int) -> int:
        return -(-len(self._kept[first][1]) // self._max_bytes)

    def keep(self, run: EntryRun, raw: bytes) -> None:
        """Keep entries just written at the log's end, in one segment, to cut pushes of them."""
        newest = self._newest
        if newest and newest[-1].run.end_pos != run.positions[0]:
            self._forget_newest()  # another segment begins: no push crosses its beginning
        if len(raw) > MAX_NEWEST_BYTES:
            self._forget_newest()
            return
        newest.append(_Placed(run, raw))
        self._firsts.append(run.first)
        self._newest_bytes += len(raw)
        if self._newest_bytes > MAX_NEWEST_BYTES:
            self._drop_older_half()

    def payload(self, first: int, end: int) -> bytes:
        """Return the bytes of entries first..end, a push that `batch_end` cut."""
        kept = self._kept.get(first)
        if kept is not None and kept[0] == end:
            return kept[1]
        cut = self._cut(first, end)
        if cut is not None and cut[0] == end:
            return cut[1]
        return self._store.read(first, end, self._max_bytes)

    def forget(self) -> None:
        self._kept.clear()
        self._forget_newest()

    def _cut(self, first: int, last: int) -> tuple[int, bytes] | None:
        """Return the end and the bytes of a push of kept entries; None if `first` is not kept."""
        at = bisect_right(self._firsts, first) - 1
        if at < 0 or first > self._newest[-1].run.last:
            return None
        begin = first - self._firsts[at]
        limit = self._newest[at].run.positions[begin] + self._max_bytes
        parts: list[bytes] = []
        end = first - 1
        while at < len(self._newest):
            run, raw = self._newest[at]
            positions = run.positions
            count = min(len(run), last + 1 - run.first)
            if count < len(run) or run.end_pos > limit:
                # Take the entries that end within the limit: the next one begins there.
                count = min(count, bisect_right(positions, limit) - 1)
            if not parts:
                count = max(count, begin + 1)
            if count <= begin:
                break
            end = run.first + count - 1
            if count == len(run):
                parts.append(raw[positions[begin] - positions[0] :] if begin else raw)
            else:
                parts.append(raw[positions[begin] - positions[0] : positions[count] - positions[0]])
                break
            at, begin = at + 1, 0
        return end, parts[0] if len(parts) == 1 else b"".join(parts)

    def sent(self, index: int) -> None:
        """Drop entries before `index`, which were sent to all peers; a resend reads them back."""
        newest, count = self._newest, 0
        while count < len(newest) and newest[count].run.last < index:
            count += 1
        if count:
            self._drop(count)

    def _drop_older_half(self) -> None:
        left, count = self._newest_bytes, 0
        while left > MAX_NEWEST_BYTES // 2:
            left -= len(self._newest[count].raw)
            count += 1
        self._drop(count)

    def _drop(self, count: int) -> None:
        self._newest_bytes -= sum(len(placed.raw) for placed in self._newest[:count])
        del self._newest[:count], self._firsts[:count]

    def _forget_newest(self) -> None:
        self._newest.clear()
        self._firsts.clear()
        self._newest_bytes = 0


# Uncommitted entries are in memory anyway, in a submission or a push. Beyond this size the page
# cache holds them at less cost than Python objects.
MAX_CACHED_BYTES = 16 * 1024 * 1024
MAX_CACHED_ENTRIES = 65_536

# The most that `take` returns. The node's other tasks run between two such runs.
MAX_RUN_ENTRIES = 1024
MAX_READ_BYTES = 256 * 1024


class EntryCache:
    """Keeps entries that the state machine has not taken yet, up to a limit; the store has them
    all.
    """

    __slots__ = ("_bytes", "_count", "_runs", "_store")

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._runs: deque[EntryRun] = deque()
        self._bytes = 0
        self._count = 0

    def add(self, run: EntryRun) -> None:
        """Keep entries that were written at the log's end, unless the cache is full."""
        size, count = run.end_pos - run.positions[0], len(run.bodies)
        if self._bytes + size <= MAX_CACHED_BYTES and self._count + count <= MAX_CACHED_ENTRIES:
            self._runs.append(run)
            self._bytes += size
            self._count += count

    def forget(self) -> None:
        self._runs.clear()
        self._bytes = self._count = 0

    def take(self, first: int, last: int) -> EntryRun:
        """Return at least one of the entries first..last, from `first` on; forget earlier ones."""
        runs = self._runs
        held = -1  # the last entry of the first run
        while runs and (held := runs[0].last) < first:
            passed = runs.popleft()
            self._bytes -= passed.end_pos - passed.positions[0]
            self._count -= len(passed.bodies)
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


# Makes the body of a leader's no-op at an index.
NoopBodies = Callable[[int], bytes]


def empty_noop(_index: int) -> bytes:
    return b""


class LogWriter:
    """The only writer of a store. The node and the simulation use it.

    `noop_body` makes the body of a leader's no-op at an index: see `dledger.store.noop_body`.
    """

    __slots__ = ("_batches", "_noop_body", "_store", "cache")

    def __init__(
        self, store: LogStore, batches: Batches, noop_body: NoopBodies = empty_noop
    ) -> None:
        self._store = store
        self._batches = batches
        self._noop_body = noop_body
        self.cache = EntryCache(store)

    def carry_out(self, write: Write) -> None:
        """Do one write. Raises DiskFailed, or InvariantBroken if it contradicts the log."""
        if isinstance(write, Accepted):
            self._push(write.push, write.first)
        elif isinstance(write, Truncation | Restart):
            self._batches.forget()
            self.cache.forget()
            if isinstance(write, Truncation):
                self._store.truncate_after(write.index)
            else:
                self._store.restart(write.begin)
        elif isinstance(write, NoopEntry):
            self._own(write.term, Magic.NOOP, self._noop_body(write.index), write.index)
        elif isinstance(write, ConfigurationEntry):
            self._own(write.term, Magic.CONFIGURATION, write.body, write.index)

    def _own(self, term: int, magic: Magic, body: bytes, index: int) -> None:
        """Append an entry that the core counts already, so that it cannot be refused."""
        try:
            self.append(term, magic, (body,), index)
        except DiskFull as error:
            cause = error.__cause__
            if not isinstance(cause, OSError):
                raise
            raise DiskFailed("append to", str(cause.filename), cause) from error

    def append(self, term: int, magic: Magic, bodies: Sequence[Body], first: int) -> int:
        """Append a leader's own entries, the first at `first`; return the last index."""
        written = self._store.append(term, magic, bodies)
        if written.first != first:
            raise InvariantBroken(f"the store appended at {written.first}, the core at {first}")
        self.cache.add(written.entries)
        if written.raw is not None:
            self._batches.keep(written.entries, written.raw)
        return written.last

    def _push(self, push: PushRequest, first: int) -> None:
        raw, facts = push.payload, push.facts
        if not isinstance(facts, BatchFacts):
            raise InvariantBroken("a push was accepted though its entries were not checked")
        if first > push.prev_index + 1:
            # A resent push, whose first entries are in the log already.
            unit_at = (first - facts.first_index) * UNIT_BYTES
            _, pos, *_ = UNIT.unpack_from(facts.index_units, unit_at)
            raw = raw[pos - facts.first_pos :]
            store = self._store
            facts = verify_batch(raw, first, store.chain_at(first - 1), store.last_term)
        self._store.write_batch(raw, facts)
        for run in facts.entries:
            self.cache.add(run)
