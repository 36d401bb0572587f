"""Cuts the log into pushes, and keeps their bytes for all peers.

The newest entries are kept as the leader wrote them. A leader under load cuts its pushes at other
places than its proposals: entries that gathered while a window was full go in one push, and a long
proposal in several. Reading such entries back, with all their checksums, took a quarter of the
leader's time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import NamedTuple

from dledger.entry_run import EntryRun
from dledger.store.log_store import LogStore

# Pushes kept for the other peers, which usually need the same ones in the same turn.
_KEPT_BATCHES = 4

# Bytes of newest entries kept until they were sent to all peers. For a peer that is further behind
# they are read back, and the others do not wait for it.
MAX_NEWEST_BYTES = 8 * 1024 * 1024


class _Placed(NamedTuple):
    """The entries of one proposal, and their bytes."""

    run: EntryRun
    raw: bytes


class Batches:
    """A BatchSizer over the store that keeps the entries written or read last."""

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
        """The last index of the push that begins at `first` and ends at `last` at most."""
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
        """For how many pushes of the usual size the one counts that was just cut at `first`."""
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
        """The bytes of entries first..end, a push that `batch_end` cut."""
        kept = self._kept.get(first)
        if kept is not None and kept[0] == end:
            return kept[1]
        cut = self._cut(first, end)
        if cut is not None and cut[0] == end:
            return cut[1]
        return self._store.read(first, end, self._max_bytes)

    def forget(self) -> None:
        """Drop everything kept: the log was cut."""
        self._kept.clear()
        self._forget_newest()

    def _cut(self, first: int, last: int) -> tuple[int, bytes] | None:
        """A push of kept entries: its last index and bytes; None if `first` is not kept."""
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
