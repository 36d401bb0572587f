"""The log of one node over segment files, with the hard state beside it.

A store is made of parts that own one thing each: where the log begins and ends (`LogExtent`), the
bytes of its entries (`SegmentLog` writes and cuts, `LogReader` reads), what is durable
(`LogDurability`), and whether all of that can still be used (`StoreHealth`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import LedgerView, TermRun
from dledger.core.orphans import Orphans
from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.entry import Body, Header
from dledger.errors import InvariantBroken
from dledger.store.batch import BatchFacts
from dledger.store.disk import Disk, DiskLock, failing
from dledger.store.hard_state_file import HardStateFile, StoreRecord
from dledger.store.index_file import LogIndex
from dledger.store.log_durability import LogDurability, SegmentSyncWork
from dledger.store.log_extent import LogExtent
from dledger.store.log_reader import LogReader
from dledger.store.log_store import Written
from dledger.store.orphans_file import OrphansFile
from dledger.store.recovered import Recovered, SegmentBegin
from dledger.store.segment import SegmentFiles, SpareSegments
from dledger.store.segment_log import SegmentLog
from dledger.store.standing_file import StandingFile
from dledger.store.store_health import StoreHealth


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """The open files of one folder."""

    disk: Disk
    data: SegmentFiles
    index: SegmentFiles
    hard_state: HardStateFile
    standing: StandingFile
    orphans: OrphansFile
    spares: SpareSegments
    lock: DiskLock

    def close(self) -> None:
        self.data.close()
        self.index.close()
        self.hard_state.close()
        self.lock.close()  # last


class DiscardedFiles:
    """Files that no reader and no recovery uses any more.

    Their removal is not synced: files that a crash brings back are removed at the next start.
    """

    def __init__(self, disk: Disk, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self._disk = disk

    def remove(self) -> None:
        """Remove the files; may run in any thread.

        Raises DiskFailed. The store can go on: the files hold no entry of the log, and the next
        start removes the rest.
        """
        for path in self.paths:
            with failing("remove", path):
                self._disk.remove(path)


# A log shorter than this fraction of a segment gets no spare: a small group would hold a whole
# segment of zeros for years. Files are sparse, so a small log takes little space without one.
SPARE_FROM_PART = 8


class SegmentStore:
    """A `LogStore` over files; made by `open_store`. See `LogStore` for what each method does.

    Any error of the disk is terminal: DiskFailed now and from every later call.

    Attributes:
        recovered: the result of the recovery when the store was opened.
    """

    def __init__(
        self,
        files: StoreFiles,
        record: StoreRecord,
        recovered: Recovered,
        body_limit: int,
        checkpoint_bytes: int,
    ) -> None:
        data = files.data
        self._index = index = LogIndex(files.index, recovered.last_index + 1)
        self._files = files
        self.recovered = recovered
        self._health = health = StoreHealth(data.folder)
        self._extent = extent = LogExtent(
            recovered, data.segment_bytes, checkpoint_bytes, record.committed
        )
        self._reader = LogReader(data, index, extent, health, record.unchecked_through)
        self._log = SegmentLog(data, index, extent, self._reader, health, body_limit)
        self._durability = LogDurability(
            data, index, files.hard_state, extent, health, record, recovered, checkpoint_bytes
        )
        self._dropped: list[str] = []  # files of the log before a restart

    # --- the extent of the log ----------------------------------------------------------------

    @property
    def first_index(self) -> int:
        return self._extent.view.before_begin + 1

    @property
    def last_index(self) -> int:
        return self._extent.view.last_index

    @property
    def last_term(self) -> int:
        return self._extent.view.last_term

    @property
    def begin_pos(self) -> int:
        return self._extent.begin_pos

    @property
    def end_pos(self) -> int:
        return self._extent.end_pos

    @property
    def epoch(self) -> int:
        return self._extent.epoch

    @property
    def segment_bytes(self) -> int:
        """Length of the data files; existing files override the configuration."""
        return self._files.data.segment_bytes

    @property
    def configuration_indexes(self) -> list[int]:
        return list(self._extent.configurations)

    @property
    def unchecked_through(self) -> int:
        """The last entry that Java wrote, so that CRC fields up to it are unused; -1 for none."""
        return self._durability.record.unchecked_through

    def term_runs(self) -> list[TermRun]:
        return list(self._extent.view.runs(self.first_index, self.last_index))

    def view(self) -> LedgerView:
        view = self._extent.view
        return LedgerView(
            self.term_runs(),
            last_index=view.last_index,
            before_begin=view.before_begin,
            before_begin_term=view.before_begin_term,
        )

    def term_at(self, index: int) -> int:
        return self._extent.view.term_at(index)

    # --- entries ------------------------------------------------------------------------------

    def append(self, term: int, magic: int, bodies: Sequence[Body]) -> Written:
        return self._log.append(term, magic, bodies)

    def write_batch(self, raw: bytes, facts: BatchFacts) -> None:
        self._log.write_batch(raw, facts)

    def chain_at(self, index: int) -> int:
        return self._reader.chain_at(index)

    def header_at(self, index: int) -> Header:
        return self._reader.header_at(index)

    def read(self, first: int, last: int, max_bytes: int) -> bytes:
        return self.read_run(first, last, max_bytes)[1]

    def read_run(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        return self._reader.read_run(first, last, max_bytes)

    def read_unchecked(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        return self._reader.read_unchecked(first, last, max_bytes)

    def read_bytes(self, pos: int, size: int) -> bytes:
        return self._reader.read_bytes(pos, size)

    def check_at(self, pos: int) -> None:
        self._reader.check_at(pos)

    def note_committed(self, index: int) -> None:
        self._extent.committed = max(self._extent.committed, index)

    def truncate_after(self, index: int) -> None:
        self._health.check()
        if index >= self.last_index:
            return
        self._log.check_cut(index)
        self._durability.before_cut(index)
        self._log.truncate_after(index)
        self._durability.after_cut()

    # --- the log's beginning ------------------------------------------------------------------

    def segment_begin(self, index: int) -> SegmentBegin:
        return self._reader.segment_begin(index)

    def begin_for(self, index: int) -> LogBegin:
        return self._reader.begin_for(index)

    def discard_before(self, index: int) -> None:
        """Drop whole segments at the log's beginning: see LogStore.

        The files are removed once the record of the new beginning is durable: `take_discarded`.
        Raises InvariantBroken also for an entry that is not durable here.
        """
        self._durability.settle()
        if index > self._durability.synced_index:
            raise InvariantBroken(
                f"discard before {index}, but {self._durability.synced_index} is durable"
            )
        self._log.discard_before(index)

    def restart(self, begin: LogBegin) -> None:
        """Drop the whole log and begin an empty one; durable on return. See LogStore.

        The record decides: until the new one is durable a start finds the old log, from then on
        the new one; `take_discarded` returns the rest of the old files.

        Raises InvariantBroken also while a sync runs: it would write a record of the old log.
        """
        self._health.check()
        if self._durability.is_syncing:
            raise InvariantBroken("the log is restarted while a sync runs")
        self._log.check_restart(begin)
        self._durability.before_cut(self._log.kept_by(begin))
        dropped = self._log.restart(begin)
        self._durability.after_cut()
        self._durability.record_restart(begin.before_index)
        self._dropped += dropped

    @property
    def record_due(self) -> bool:
        return self._durability.record_due

    def take_discarded(self) -> DiscardedFiles | None:
        """Return files that the log no longer needs, to be removed in any thread, or None."""
        self._health.check()
        record = self._durability.record
        data = self._files.data.forget_before(record.begin_pos)
        index = self._index.forget_before(record.before_begin + 1)
        dropped, self._dropped = self._dropped, []
        if not data and not index and not dropped:
            return None
        return DiscardedFiles(self._files.disk, (*dropped, *data, *index))

    # --- durability ---------------------------------------------------------------------------

    @property
    def synced_index(self) -> int:
        """The last entry that a finished sync made durable."""
        return self._durability.synced_index

    @property
    def hard_state(self) -> HardState:
        return self._durability.record.hard_state

    @property
    def standing(self) -> Standing:
        return self._files.standing.standing

    def set_standing(self, standing: Standing) -> None:
        self._health.check()
        with self._health.disk_work("mark"):
            self._files.standing.set(standing)

    @property
    def orphans(self) -> Orphans | None:
        return self._files.orphans.orphans

    def set_orphans(self, orphans: Orphans | None) -> None:
        self._health.check()
        with self._health.disk_work("mark"):
            self._files.orphans.set(orphans)

    def begin_sync(self, hard_state: HardState | None) -> SegmentSyncWork:
        return self._durability.begin_sync(hard_state)

    def save_committed(self, *, in_next_sync: bool = True) -> bool:
        return self._durability.save_committed(in_next_sync=in_next_sync)

    def prepare_spare(self) -> None:
        """Write a data file ahead, in any thread; see SpareSegments.

        Raises DiskFailed. The store can go on: the file holds no entry.
        """
        with failing("prepare a spare file for", self._files.data.folder):
            self._files.spares.prepare()

    @property
    def spare_wanted(self) -> bool:
        """Whether a data file should be written ahead: there is none, and the log will need one."""
        held_bytes = self.end_pos - self.begin_pos
        return self._files.spares.wanted and held_bytes * SPARE_FROM_PART >= self.segment_bytes

    def close(self) -> None:
        """Sync everything, record the commit index, release the folder. A second call does nothing.

        After a failure files are only closed. The lock is released in any case.
        """
        if self._health.closed:
            return
        self._health.closed = True
        try:
            self._durability.sync_all()
        finally:
            self._files.close()
