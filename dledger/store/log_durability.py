"""The syncs of a store: what is durable, and how more becomes durable.

A sync makes the data files durable first and the record of term and vote second, so the record's
`committed` may include entries of the same sync. Neither is acknowledged before both are durable. A
crash between the two may leave entries of a term above the record's: `open_store` then raises the
term and clears the vote. That is safe, because a vote in that term would be in the record.
"""

from __future__ import annotations

from dledger.core.hard_state import HardState
from dledger.entry import BEFORE_FIRST_INDEX
from dledger.errors import DiskFailed, InvariantBroken
from dledger.store.disk import DiskFile
from dledger.store.hard_state_file import HardStateFile, StoreRecord
from dledger.store.index_file import LogIndex
from dledger.store.log_extent import LogExtent
from dledger.store.recovered import Recovered
from dledger.store.segment import SegmentFiles
from dledger.store.store_health import StoreHealth


class SegmentSyncWork:
    """The `SyncWork` of a SegmentStore. The store uses the result only once `done` is set."""

    def __init__(
        self,
        index: int,
        epoch: int,
        hard_state: HardState | None,
        files: list[DiskFile],
        covers_index: bool,
        record: StoreRecord | None,
        hard_state_file: HardStateFile,
        health: StoreHealth,
    ) -> None:
        self.index = index
        self.epoch = epoch
        self.hard_state = hard_state
        self.covers_index = covers_index
        self.record = record
        self.failure: DiskFailed | None = None
        self.done = False
        self._started = False
        self._files = files
        self._hard_state_file = hard_state_file
        self._health = health

    @property
    def running(self) -> bool:
        """Whether `run` has begun and not ended."""
        return self._started and not self.done

    def run(self) -> None:
        """Sync the data, mark them as synced, then write and sync the record.

        Raises DiskFailed; runs once.
        """
        if self._started:
            raise InvariantBroken("a sync ran twice")
        self._started = True
        synced: DiskFile | HardStateFile = self._hard_state_file
        try:
            for file in self._files:
                synced = file
                file.sync()
            synced = self._hard_state_file
            self._hard_state_file.mark_synced(self.index)
            if self.record is not None:
                self._hard_state_file.write(self.record, durable=True)
        except OSError as cause:
            self.failure = self._health.failure = DiskFailed("sync", synced.path, cause)
            raise self.failure from cause
        finally:
            self.done = True


class LogDurability:
    """The syncs of one store, one at a time, and the record that they write.

    Args:
        data, index: the log.
        hard_state_file: holds the record, and the synced mark.
        extent: where the log begins and ends.
        health: ended by any error of the disk.
        record: the durable record.
        recovered: the log as it is durable at the start.
        checkpoint_bytes: the index is synced whenever the log has grown by this much.
    """

    def __init__(
        self,
        data: SegmentFiles,
        index: LogIndex,
        hard_state_file: HardStateFile,
        extent: LogExtent,
        health: StoreHealth,
        record: StoreRecord,
        recovered: Recovered,
        checkpoint_bytes: int,
    ) -> None:
        self._data = data
        self._index = index
        self._hard_state_file = hard_state_file
        self._extent = extent
        self._health = health
        self._record = record
        self._checkpoint_bytes = checkpoint_bytes
        self._synced_index = recovered.last_index
        self._index_synced_through = recovered.last_index
        self._index_synced_pos = recovered.end_pos  # the log's end at the last sync of the index
        self._record_wanted = False  # by the next sync
        self._save_wanted = False  # once no sync is in flight
        self._work: SegmentSyncWork | None = None

    @property
    def record(self) -> StoreRecord:
        self.settle()
        return self._record

    @property
    def synced_index(self) -> int:
        """The last entry that a finished sync made durable."""
        work = self._work
        if (
            work is not None
            and work.done
            and work.failure is None
            and work.epoch == self._extent.epoch
        ):
            return work.index
        return self._synced_index

    @property
    def is_syncing(self) -> bool:
        self.settle()
        return self._work is not None

    @property
    def record_due(self) -> bool:
        """Whether the record on disk still names an older beginning than the log has."""
        if self._record.begin_pos >= self._extent.begin_pos:
            return False  # a record that a sync wrote meanwhile is no older
        self.settle()
        return self._record.begin_pos < self._extent.begin_pos and self._work is None

    # --- syncs --------------------------------------------------------------------------------

    def begin_sync(self, hard_state: HardState | None) -> SegmentSyncWork:
        """Begin a sync of everything that is dirty now; see `SyncWork`.

        Raises:
            InvariantBroken: the previous work has not run yet, or the hard state contradicts the
                recorded one.
        """
        self._health.check()
        self.settle()
        if self._work is not None:
            raise InvariantBroken("a second sync was begun before the first one ended")
        if hard_state is not None:
            self._check_promise(hard_state)
        extent, data = self._extent, self._data
        end_pos, first_dirty = extent.end_pos, data.first_dirty
        covers_index = first_dirty >= 0 and (
            first_dirty != end_pos - end_pos % data.segment_bytes
            or end_pos - self._index_synced_pos >= self._checkpoint_bytes
        )
        writes_record = hard_state is not None or self._record_wanted or self.record_due
        if covers_index or writes_record:
            covers_index &= self._write_index()
        dirty = data.take_dirty()
        if covers_index:  # a segment, or enough of it, is full: recovery may then begin after it
            dirty += self._index.files.take_dirty()
            self._index_synced_pos = end_pos
        record = None
        if writes_record:
            record = self._next_record(hard_state, extent.last_index, covers_index)
            self._record_wanted = False
        self._work = SegmentSyncWork(
            extent.last_index,
            extent.epoch,
            hard_state,
            dirty,
            covers_index,
            record,
            self._hard_state_file,
            self._health,
        )
        return self._work

    def _write_index(self) -> bool:
        """Write the index, which a record or a checkpoint counts on; return False if there is no
        room for it.
        """
        with self._health.disk_work("write the index of"):
            return self._index.write_if_room()

    def _check_promise(self, hard_state: HardState) -> None:
        """Check that the term does not decrease and the vote in it does not change (Raft, 5.2)."""
        term, vote = self._record.term, self._record.voted_for
        if hard_state.term < term or (
            hard_state.term == term and vote is not None and hard_state.voted_for != vote
        ):
            raise InvariantBroken(
                f"term {hard_state.term} with vote {hard_state.voted_for} "
                f"after term {term} with vote {vote}"
            )

    def settle(self) -> None:
        """Take over the result of a sync that has run, and write the record that waited for it.

        Raises DiskFailed if the sync or the write failed.
        """
        work = self._work
        if work is not None and work.done:
            self._work = None
            self._take_over(work)
        if self._save_wanted and self._work is None:
            self._save()

    def _take_over(self, work: SegmentSyncWork) -> None:
        self._data.settle()
        if work.covers_index:
            self._index.files.settle()
        if work.failure is not None:
            self._health.fail(work.failure)
        if work.record is not None:
            self._record = work.record
        if work.epoch == self._extent.epoch:
            self._synced_index = work.index
            if work.covers_index:
                self._index_synced_through = work.index
        else:  # the sync marked entries that were cut meanwhile
            with self._health.disk_work("write the synced mark of"):
                self._hard_state_file.mark_synced(self._synced_index)

    # --- around changes of the log ------------------------------------------------------------

    def before_cut(self, index: int) -> None:
        """Prepare for a cut after `index`: later entries no longer count as synced."""
        self.settle()  # a sync that ended before the cut belongs to the log before it
        with self._health.disk_work("lower the synced mark of"):
            self._hard_state_file.lower_mark(index)

    def after_cut(self) -> None:
        """Note that the log was cut, and that its new end is durable."""
        extent = self._extent
        self._synced_index = min(self._synced_index, extent.last_index)
        self._index_synced_through = min(self._index_synced_through, extent.last_index)
        self._index_synced_pos = min(self._index_synced_pos, extent.end_pos)

    def record_restart(self, before: int) -> None:
        """Record that an empty log begins after entry `before`; durable on return."""
        self._synced_index = self._index_synced_through = before
        record = self._next_record(None, before, True)
        with self._health.disk_work("record the new log of"):
            self._hard_state_file.write(record, durable=True)
            self._hard_state_file.mark_synced(before)
        self._record = record

    # --- the record ---------------------------------------------------------------------------

    def save_committed(self, *, in_next_sync: bool = True) -> bool:
        """Write the record with the noted commit index, without a sync.

        While a sync is in flight, the record waits for its end, or for the next call.

        Args:
            in_next_sync: the next sync makes the record durable, and has one more file to sync.

        Returns:
            whether the record is written.
        """
        self._health.check()
        self._save_wanted = True
        self._record_wanted |= in_next_sync
        self.settle()
        return not self._save_wanted

    def _save(self) -> None:
        self._save_wanted = False
        record = self._next_record(None, self._synced_index, False)
        if record == self._record:
            self._record_wanted = False  # it is durable
            return
        self._write_index()
        with self._health.disk_work("write the hard state of"):
            self._hard_state_file.write(record, durable=False)

    def _next_record(
        self, hard_state: HardState | None, synced_index: int, index_synced: bool
    ) -> StoreRecord:
        """Return the record to write once everything up to `synced_index` is durable."""
        extent = self._extent
        if hard_state is not None:
            extent.committed = max(extent.committed, hard_state.committed)
        committed = max(self._record.committed, min(extent.committed, synced_index))
        index_through = synced_index if index_synced else self._index_synced_through
        # Entries up to a committed one are final once their index units are durable.
        begin = extent.begins.settle(min(committed, index_through + 1))
        changes = extent.configurations
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
            unchecked_through=min(self._record.unchecked_through, extent.last_index),
            before_begin=extent.view.before_begin,
            before_begin_term=extent.view.before_begin_term,
            before_begin_chain=extent.before_begin_chain,
            begin_pos=extent.begin_pos,
            scan_pos=begin.pos,
            scan_index=begin.first_index,
            configuration_index=BEFORE_FIRST_INDEX if last_change is None else last_change,
        )

    # --- the end ------------------------------------------------------------------------------

    def sync_all(self) -> None:
        """Sync everything and record what is committed, in this thread.

        Raises DiskFailed, and InvariantBroken while a sync runs.
        """
        if self._work is not None and self._work.running:
            raise InvariantBroken("the store was closed while a sync runs")
        if self._health.failure is not None:
            return
        self.settle()
        with self._health.disk_work("sync"):
            if self._work is not None:
                self._work.run()  # a sync was begun and never run
                self.settle()
            covers_index = self._index.write_if_room()
            for file in [*self._data.take_dirty(), *self._index.files.take_dirty()]:
                file.sync()
            last_index = self._extent.last_index
            self._hard_state_file.mark_synced(last_index)
            record = self._next_record(None, last_index, covers_index)
            self._hard_state_file.write(record, durable=True)
