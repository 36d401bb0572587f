"""The log over segment files, with the hard state beside it.

Order of durability. A sync makes the data files durable first, the record of term and vote
second, so that the record's `committed` may count what the same sync made durable. Neither is
acknowledged before both are there. A crash between them leaves entries of a term that the record
does not know yet: `open_store` then raises the term and leaves the vote empty, which is safe,
for a vote in that term would have been in the record.
"""

from __future__ import annotations

from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.entry import BEFORE_FIRST_INDEX
from dledger.errors import DiskFailed, InvariantBroken
from dledger.store.discarded_files import DiscardedFiles
from dledger.store.hard_state_file import StoreRecord
from dledger.store.index_unit import UNIT_BYTES
from dledger.store.log_beginning import LogWithBeginning
from dledger.store.recovery import Recovered
from dledger.store.store_files import StoreFiles
from dledger.store.sync_work import SegmentSyncWork

# A log that is shorter than this part of a segment gets no spare: a small group would hold a whole
# segment of zeros for years. Files are sparse, so its log takes what was written to it.
SPARE_FROM_PART = 8


class SegmentStore(LogWithBeginning):
    """A `LogStore` over files; made by `open_store`.

    Attributes:
        recovered: what was found when the store was opened.
    """

    def __init__(
        self,
        files: StoreFiles,
        record: StoreRecord,
        recovered: Recovered,
        body_limit: int,
        checkpoint_bytes: int,
    ) -> None:
        super().__init__(files.data, files.index, recovered, body_limit, checkpoint_bytes)
        self._checkpoint_bytes = checkpoint_bytes
        self._files = files
        self._hard_state_file = files.hard_state
        self._spares = files.spares
        self.recovered = recovered
        self._record = record  # the last one that is durable
        self._committed = record.committed
        self._unchecked_through = record.unchecked_through
        self._synced_index = recovered.last_index
        self._index_synced_through = recovered.last_index
        self._index_synced_pos = recovered.end_pos  # the log's end when a sync last took the index
        self._record_wanted = False
        self._work: SegmentSyncWork | None = None
        self._dropped: list[str] = []  # files of a log that was begun anew

    @property
    def synced_index(self) -> int:
        """The last entry that is durable, by the syncs that have ended."""
        work = self._work
        if work is not None and work.done and work.failure is None and work.epoch == self._epoch:
            return work.index
        return self._synced_index

    @property
    def hard_state(self) -> HardState:
        """The hard state that is durable now."""
        self._settle()
        return self._record.hard_state

    @property
    def standing(self) -> Standing:
        """Whether the folder is known to hold all that was promised from it."""
        return self._files.standing.standing

    def set_standing(self, standing: Standing) -> None:
        """Record that; durable when it returns. Raises DiskFailed."""
        self._check_usable()
        with self._disk_work("mark"):
            self._files.standing.set(standing)

    @property
    def unchecked_through(self) -> int:
        """Entries up to here were written by Java: their CRC fields mean nothing. -1: none."""
        return self._record.unchecked_through

    def truncate_after(self, index: int) -> None:
        """Drop every entry behind `index`; durable when it returns. See SegmentLog."""
        self._check_usable()
        self._settle()  # a sync that ended before the cut counts as of before it
        if self._committed <= index < self.last_index:
            with self._disk_work("lower the synced mark of"):
                self._hard_state_file.lower_mark(index)
        super().truncate_after(index)
        self._synced_index = min(self._synced_index, self.last_index)
        self._index_synced_through = min(self._index_synced_through, self.last_index)
        self._index_synced_pos = min(self._index_synced_pos, self._end_pos)

    def discard_before(self, index: int) -> None:
        """Drop whole segments at the log's beginning; see LogWithBeginning.

        The files go when the record of the new beginning is durable: `take_discarded`. Raises
        InvariantBroken also for an entry that no sync has made durable here.
        """
        self._settle()
        if index > self._synced_index:
            raise InvariantBroken(f"discard before {index}, but {self._synced_index} is durable")
        super().discard_before(index)

    def restart(self, begin: LogBegin) -> None:
        """Drop the whole log and begin an empty one; durable when it returns. See LogStore.

        The record decides: until the new one is durable a start finds the old log, from then on
        the new one, and whatever is left of the old files is removed: `take_discarded`.

        Raises InvariantBroken also while a sync runs: it would write a record of the old log.
        """
        self._check_usable()
        self._settle()
        if self._work is not None:
            raise InvariantBroken("the log is begun anew while a sync runs")
        dropped = self._begin_anew(begin)
        before = begin.before_index
        self._synced_index = self._index_synced_through = self._committed = before
        record = self._next_record(None, before, True)
        with self._disk_work("record the new log of"):
            self._hard_state_file.write(record, durable=True)
            self._hard_state_file.mark_synced(before)
        self._record = record
        self._dropped += dropped

    @property
    def record_due(self) -> bool:
        """Whether the record on disk still names an older beginning than the log has."""
        self._settle()
        recorded = self._record.begin_pos
        return recorded < self._begin_pos and self._work is None

    def take_discarded(self) -> DiscardedFiles | None:
        """The files that nobody needs any more, to be removed in any thread; None without."""
        self._check_usable()
        self._settle()
        data = self._data.forget_before(self._record.begin_pos)
        index = self._index.forget_before((self._record.before_begin + 1) * UNIT_BYTES)
        dropped, self._dropped = self._dropped, []
        if not data and not index and not dropped:
            return None
        return DiscardedFiles(self._files.disk, (*dropped, *data, *index))

    # --- durability ---------------------------------------------------------------------------

    def begin_sync(self, hard_state: HardState | None) -> SegmentSyncWork:
        """What is dirty now; see `SyncWork`.

        Raises:
            InvariantBroken: the work before this one has not run yet, or the hard state breaks
                a promise that is recorded.
        """
        self._check_usable()
        self._settle()
        if self._work is not None:
            raise InvariantBroken("a second sync was begun before the first one ended")
        if hard_state is not None:
            self._check_promise(hard_state)
        end_pos, first_dirty = self._end_pos, self._data.first_dirty
        covers_index = first_dirty >= 0 and (
            first_dirty != end_pos - end_pos % self._data.segment_bytes
            or end_pos - self._index_synced_pos >= self._checkpoint_bytes
        )
        dirty = self._data.take_dirty()
        if covers_index:  # a segment is full, or enough of it: recovery may then begin behind it
            dirty += self._index.take_dirty()
            self._index_synced_pos = end_pos
        record = None
        if hard_state is not None or self._record_wanted or self.record_due:
            record = self._next_record(hard_state, self.last_index, covers_index)
            self._record_wanted = False
        self._work = SegmentSyncWork(
            self.last_index,
            self._epoch,
            hard_state,
            dirty,
            covers_index,
            record,
            self._hard_state_file,
        )
        return self._work

    def _check_promise(self, hard_state: HardState) -> None:
        """Terms never go back, and a vote is given once a term (Raft, section 5.2)."""
        term, vote = self._record.term, self._record.voted_for
        if hard_state.term < term or (
            hard_state.term == term and vote is not None and hard_state.voted_for != vote
        ):
            raise InvariantBroken(
                f"term {hard_state.term} with vote {hard_state.voted_for} "
                f"after term {term} with vote {vote}"
            )

    def save_committed(self) -> None:
        """Write the record with what was noted, without a sync. The next sync makes it durable.

        While a sync is under way the record is only written with the next one.
        """
        self._check_usable()
        self._settle()
        if self._work is not None:
            self._record_wanted = True
            return
        record = self._next_record(None, self._synced_index, False)
        if record != self._record:
            self._record_wanted = True  # durable with the next sync, and the synced mark with it
            with self._disk_work("write the hard state of"):
                self._hard_state_file.write(record, durable=False)

    def prepare_spare(self) -> None:
        """Write a data file ahead, in any thread; see SpareSegments.

        Raises DiskFailed when that fails. The store goes on: no entry was concerned.
        """
        try:
            self._spares.prepare()
        except OSError as cause:
            path = cause.filename if isinstance(cause.filename, str) else self._data.folder
            raise DiskFailed("prepare a spare file for", path, cause) from cause

    @property
    def spare_wanted(self) -> bool:
        """Whether a data file should be written ahead: there is none, and the log will need one."""
        held_bytes = self._end_pos - self._begin_pos
        return self._spares.wanted and held_bytes * SPARE_FROM_PART >= self._data.segment_bytes

    def close(self) -> None:
        """Sync everything, record what is committed, release the folder. Again: nothing.

        After a failure files are only closed. The lock is released in any case.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._work is not None and self._work.running:
                raise InvariantBroken("the store was closed while a sync runs")
            if self._failure is None:
                self._settle()
                self._sync_all()
        finally:
            self._files.close()

    def _sync_all(self) -> None:
        with self._disk_work("sync"):
            if self._work is not None:
                self._work.run()  # begun, and never run
                self._settle()
            for file in [*self._data.take_dirty(), *self._index.take_dirty()]:
                file.sync()
            self._index_synced_through = self.last_index
            self._hard_state_file.mark_synced(self.last_index)
            record = self._next_record(None, self.last_index, True)
            self._hard_state_file.write(record, durable=True)

    def _next_record(
        self, hard_state: HardState | None, synced_index: int, index_synced: bool
    ) -> StoreRecord:
        """The record as it may be written once everything up to `synced_index` is durable."""
        if hard_state is not None:
            self._committed = max(self._committed, hard_state.committed)
        committed = max(self._record.committed, min(self._committed, synced_index))
        index_through = synced_index if index_synced else self._index_synced_through
        # What lies before a committed entry is fixed, if the index of it is durable.
        begin = self._begins.settle(min(committed, index_through + 1))
        changes = self._configurations
        while len(changes) > 1 and changes[1] < begin.first_index:
            changes.pop(0)
        last_change = changes[0] if changes and changes[0] < begin.first_index else None
        term, vote = self._record.term, self._record.voted_for
        if hard_state is not None:
            term, vote = hard_state.term, hard_state.voted_for
        return self._record._replace(
            term=term,
            voted_for=vote,
            committed=committed,
            unchecked_through=min(self._record.unchecked_through, self.last_index),
            before_begin=self._view.before_begin,
            before_begin_term=self._view.before_begin_term,
            before_begin_chain=self._before_begin_chain,
            begin_pos=self._begin_pos,
            scan_pos=begin.pos,
            scan_index=begin.first_index,
            configuration_index=BEFORE_FIRST_INDEX if last_change is None else last_change,
        )

    def _settle(self) -> None:
        """Take over the results of a sync that has run."""
        work = self._work
        if work is None or not work.done:
            return
        self._work = None
        self._data.settle()
        self._index.settle()
        if work.failure is not None:
            self._fail(work.failure)
        if work.record is not None:
            self._record = work.record
        if work.epoch == self._epoch:
            self._synced_index = work.index
            if work.covers_index:
                self._index_synced_through = work.index
        else:  # it marked what was cut meanwhile
            with self._disk_work("write the synced mark of"):
                self._hard_state_file.mark_synced(self._synced_index)

    def _check_usable(self) -> None:
        work = self._work
        if work is not None and work.failure is not None:
            self._failure = work.failure
        super()._check_usable()
