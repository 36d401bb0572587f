"""Where a log begins: its first segments go, or all of it, for what a snapshot stands for."""

from __future__ import annotations

from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.errors import InvariantBroken
from dledger.store.index_unit import UNIT_BYTES
from dledger.store.recovery import SegmentBegin
from dledger.store.segment_log import SegmentLog
from dledger.store.walk_begins import WalkBegin


class LogWithBeginning(SegmentLog):
    """A log that may begin at any segment."""

    def discard_before(self, index: int) -> None:
        """Drop whole segments at the log's beginning, none with `index` or a later entry in it.

        Cutting only where a segment begins keeps replicas equal byte by byte, and the position
        of the log's end the same on all of them.

        Raises:
            InvariantBroken: `index` is not committed. Then another leader could still cut the
                log before its new beginning.
            DiskFailed: terminal.
        """
        self._check_usable()
        if index <= self.first_index:
            return
        if index > self._committed or index > self.last_index:
            raise InvariantBroken(f"discard before {index}, but {self._committed} is committed")
        pos, first = self.segment_begin(index)
        if first == self.first_index:
            return
        self._before_begin_chain = self.chain_at(first - 1)
        self._view.discard_before(first)
        self._begin_pos = pos
        self._begins.drop_before(pos)
        self._configurations = [found for found in self._configurations if found >= first]

    def segment_begin(self, index: int) -> SegmentBegin:
        """The segment that an entry lies in: where it begins, and with which entry.

        Raises OutsideLog, DiskFailed.
        """
        self._check_usable()
        pos = self._unit(index).pos
        pos -= pos % self._data.segment_bytes
        if pos <= self._begin_pos:
            return SegmentBegin(self._begin_pos, self.first_index)
        return SegmentBegin(pos, self._last_before(pos, index) + 1)

    def _last_before(self, pos: int, index: int) -> int:
        """The last entry that ends at `pos` or before; `index` is one that does not."""
        low, high = self.first_index - 1, index
        while high - low > 1:
            middle = (low + high) // 2
            if self._unit(middle).end <= pos:
                low = middle
            else:
                high = middle
        return low

    def begin_for(self, index: int) -> LogBegin:
        """Where the log of a member begins that is given the state after entry `index`."""
        pos, first = self._begin_pos, self.first_index
        if index != first - 1:
            pos, first = self.segment_begin(index)
        return LogBegin(first - 1, self.term_at(first - 1), self.chain_at(first - 1), pos)

    def _begin_anew(self, begin: LogBegin) -> list[str]:
        """Drop everything, in memory; the files that are no part of the log any more.

        On disk only what lies at the new beginning or behind it is cut: before a record names that
        beginning. Raises InvariantBroken as LogStore.restart.
        """
        before, pos = begin.before_index, begin.pos
        if before <= self._committed or self.term_at(before) == begin.before_term:
            raise InvariantBroken(
                f"restart behind entry {before} of term {begin.before_term}: committed is "
                f"{self._committed}, the log ends with {self.last_index}"
            )
        epoch = self._epoch + 1
        keep = min(before - 1, self.last_index)
        if keep >= self.first_index and self._unit(keep).end > pos:
            keep = self._last_before(pos, keep)
        self.truncate_after(max(keep, self.first_index - 1))
        segment_pos = pos - pos % self._data.segment_bytes
        dropped = self._data.forget_before(segment_pos)
        dropped += self._index.forget_before((before + 1) * UNIT_BYTES)
        self._view.restart(before, begin.before_term)
        self._before_begin_chain = self._last_chain = begin.before_chain
        self._begin_pos = self._end_pos = pos
        self._begins.restart(WalkBegin(segment_pos, before + 1))
        self._configurations = []
        self._epoch = epoch
        return dropped
