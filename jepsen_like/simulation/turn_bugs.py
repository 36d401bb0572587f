"""Bugs planted on purpose around the core: in syncs, snapshots, retention and reads."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

from dledger.node.sync_schedule import SyncSchedule
from dledger.store.log_durability import LogDurability
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from dledger.store.snapshot_format import SnapshotHeader
from dledger.waits.pending_reads import PendingReads
from jepsen_like.simulation.seeded_bug import Replacement, SeededBug


def _commit_recorded_ahead_of_the_disk() -> list[Replacement]:
    def next_record(self: LogDurability, hard_state: Any, synced_index: int, covers: bool) -> Any:
        record = made(self, hard_state, synced_index, covers)
        return record._replace(committed=max(record.committed, self._extent.last_index))

    made = LogDurability._next_record
    return [Replacement(LogDurability, "_next_record", next_record)]


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


def _flush_due_for_ever() -> list[Replacement]:
    def next_deadline(self: SyncSchedule) -> float:
        return float("inf") if self._delay is None else self._delay.due_at

    return [Replacement(SyncSchedule, "next_deadline", property(next_deadline))]


def _read_served_before_it_is_applied() -> list[Replacement]:
    def applied_to(self: PendingReads, index: int) -> None:
        applied(self, index + 10)

    applied = PendingReads.applied_to
    return [Replacement(PendingReads, "applied_to", applied_to)]


TURN_BUGS = (
    SeededBug(
        "flush-due-for-ever",
        "a late flush asks for turns while its sync runs, or when everything is synced",
        _flush_due_for_ever,
    ),
    SeededBug(
        "read-served-before-it-is-applied",
        "a read is answered though the state machine lacks some of what it must see",
        _read_served_before_it_is_applied,
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
