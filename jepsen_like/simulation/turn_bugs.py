"""Bugs planted on purpose in what runs around the core: syncs, snapshots, retention, reads."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

from dledger.node.flush_delay import FlushDelay, Written
from dledger.node.sync_schedule import SyncSchedule
from dledger.store.segment_store import SegmentStore
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from dledger.store.snapshot_format import SnapshotHeader
from jepsen_like.simulation.seeded_bug import Replacement, SeededBug


def _entries_overtake_their_term() -> list[Replacement]:
    def counts(self: FlushDelay, written: Written, now: float) -> bool:
        before, self._promises = self._promises, False
        try:
            return counted(self, written, now)
        finally:
            self._promises = before

    def written_that_counts(self: SyncSchedule, now: float) -> Written | None:
        before, self.hard_state_due = self.hard_state_due, None
        try:
            return counting(self, now)
        finally:
            self.hard_state_due = before

    counted, counting = FlushDelay.counts, SyncSchedule.written_that_counts
    return [
        Replacement(FlushDelay, "counts", counts),
        Replacement(SyncSchedule, "written_that_counts", written_that_counts),
    ]


def _commit_recorded_ahead_of_the_disk() -> list[Replacement]:
    def next_record(self: SegmentStore, hard_state: Any, synced_index: int, covers: bool) -> Any:
        record = made(self, hard_state, synced_index, covers)
        return record._replace(committed=max(record.committed, self.last_index))

    made = SegmentStore._next_record
    return [Replacement(SegmentStore, "_next_record", next_record)]


def _snapshot_named_before_its_folder_is_synced() -> list[Replacement]:
    @contextmanager
    def unsynced(folder: SnapshotFolder) -> Any:
        disk = folder.disk
        sync_folder = disk.sync_folder
        disk.sync_folder = lambda path: None  # type: ignore[method-assign]
        try:
            yield
        finally:
            disk.sync_folder = sync_folder  # type: ignore[method-assign]

    def adopt(self: SnapshotFolder, *arguments: Any) -> Snapshot:
        with unsynced(self):
            return adopted(self, *arguments)

    def write(self: SnapshotFolder, header: SnapshotHeader, *arguments: Any) -> Snapshot | None:
        with unsynced(self):
            return written(self, header, *arguments)

    adopted, written = SnapshotFolder.adopt, SnapshotFolder.write
    return [
        Replacement(SnapshotFolder, "adopt", adopt),
        Replacement(SnapshotFolder, "write", write),
    ]


TURN_BUGS = (
    SeededBug(
        "entries-overtake-their-term",
        "a late flush lets entries count while their term is on its way to the disk",
        _entries_overtake_their_term,
    ),
    SeededBug(
        "commit-recorded-ahead-of-the-disk",
        "the record calls entries committed that are not durable",
        _commit_recorded_ahead_of_the_disk,
    ),
    SeededBug(
        "snapshot-named-before-its-folder-is-synced",
        "a snapshot is relied on whose name a power cut takes back",
        _snapshot_named_before_its_folder_is_synced,
    ),
)
