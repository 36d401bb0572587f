"""No log is dropped for a snapshot whose name a power cut can still take back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from dledger.core.hard_state import HardState
from dledger.core.snapshot.snapshot_offer import LogBegin, SnapshotOffer
from dledger.entry import Entry, Magic
from dledger.errors import DiskFailed
from dledger.snapshots.restoring import find_awaited, restore_newest
from dledger.store.incoming_snapshot import IncomingSnapshot
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from dledger.store.snapshot_format import SnapshotHeader
from dledger.store.store_config import StoreConfig
from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, PowerCut, VirtualDisk

CONFIG = StoreConfig(segment_bytes=4096, index_segment_bytes=320, max_body_bytes=500)
NODE = "/base/dledger-n1"
CHUNKS = [b"chunk %d " % number * 20 for number in range(30)]
HEADER = SnapshotHeader(100, 2, 40960 + 100, 60, 1234, "g", "m/1")
NOTHING_UNSYNCED = CrashStyle(keep=0.0, torn=0.0, names_in_order=True)
STYLES = [NOTHING_UNSYNCED, CrashStyle(keep=0.5, torn=0.5, names_in_order=False)]
# More calls of the disk than one life of a member makes here.
MAX_STEPS = 200


class Machine:
    """Takes any state."""

    snapshot_format = "m/1"

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        return [None] * len(entries)

    def snapshot(self) -> Iterator[bytes]:
        return iter(CHUNKS)

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.chunks = list(chunks)


def leaders_snapshot() -> tuple[SnapshotFolder, Snapshot]:
    folder = SnapshotFolder(VirtualDisk(Chance(1, "leader")), "/leader")
    folder.open()
    snapshot = folder.write(HEADER, CHUNKS, lambda: False)
    assert snapshot is not None
    return folder, snapshot


LEADER, SENT = leaders_snapshot()
OFFER = SnapshotOffer(100, 2, 1234, SENT.size_bytes, LogBegin(90, 2, 99, 40960))


class Life:
    """One life of a member's process: what it has open."""

    def __init__(self, disk: VirtualDisk) -> None:
        self.store: SegmentStore = open_store(disk, "/base", CONFIG, "g", "n1")
        self.folder = SnapshotFolder(disk, NODE)
        self.folder.open()
        self.incoming = IncomingSnapshot(self.folder, "g", "m/1", 1024)

    def receive(self) -> None:
        received = self.incoming.take(OFFER, 0, b"")
        while received.snapshot is None:
            piece = LEADER.read_piece(SENT, received.stored, 700)
            received = self.incoming.take(OFFER, received.stored, piece)

    def install(self) -> None:
        """Begin the log anew for the snapshot's sake, unless an earlier life did."""
        if self.store.first_index == 0:
            self.store.restart(OFFER.begin)
        if (files := self.store.take_discarded()) is not None:
            files.remove()


def with_a_log() -> VirtualDisk:
    disk = VirtualDisk(Chance(2, "follower"))
    store = open_store(disk, "/base", CONFIG, "g", "n1")
    store.append(1, Magic.NORMAL, [b"old"] * 5)
    store.begin_sync(HardState(2, None, 3)).run()
    store.close()
    disk.end_process()
    return disk


def assert_a_beginning(disk: VirtualDisk) -> None:
    """The log is whole, or a snapshot stands for what is missing."""
    life = Life(disk)
    if life.store.first_index == 0:
        assert life.store.last_index == 4
        return
    found = find_awaited(life.folder, life.store, Machine(), "g")
    assert found is not None, "the log has no beginning"
    assert found.header == HEADER


def steps_of_a_receipt() -> int:
    disk = with_a_log()
    disk.steps_left = MAX_STEPS
    Life(disk).receive()
    assert disk.steps_left > 0
    return MAX_STEPS - disk.steps_left


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("killed_at", range(steps_of_a_receipt()))
def test_a_process_killed_at_any_step_of_a_receipt_leaves_nothing_to_be_believed_too_early(
    killed_at: int, style: CrashStyle
) -> None:
    """The next life installs the snapshot at once, and then the power goes."""
    disk = with_a_log()
    disk.steps_left = killed_at
    with pytest.raises(PowerCut):
        Life(disk).receive()
    disk.end_process()
    life = Life(disk)
    life.receive()
    life.install()
    disk.cut_power(style)
    assert_a_beginning(disk)


@pytest.mark.parametrize("style", STYLES)
def test_a_power_cut_at_any_step_of_an_install_leaves_a_beginning(style: CrashStyle) -> None:
    for steps in range(MAX_STEPS):
        disk = with_a_log()
        disk.steps_left = steps
        try:
            life = Life(disk)
            life.receive()
            life.install()
            break
        except PowerCut:
            disk.cut_power(style)
        assert_a_beginning(disk)
    assert 20 < steps < MAX_STEPS - 1


def test_a_folder_sync_that_fails_ends_the_node_that_receives() -> None:
    disk = with_a_log()
    life = Life(disk)
    life.incoming.take(OFFER, 0, b"")
    disk.folder_sync_fails = True
    with pytest.raises(DiskFailed, match="sync the names in"):
        life.receive()
    disk.cut_power(NOTHING_UNSYNCED)
    assert_a_beginning(disk)


def test_a_rename_that_fails_leaves_no_snapshot_and_the_receipt_begins_anew() -> None:
    disk = with_a_log()
    life = Life(disk)
    disk.rename_fails = True
    with pytest.raises(OSError, match="fails"):
        life.receive()
    assert life.folder.indexes() == []
    life.receive()
    assert life.folder.indexes() == [100]


def test_a_part_of_which_a_sync_failed_is_never_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the cache holds of it and the disk holds of it may differ from then on."""
    disk = with_a_log()
    life = Life(disk)
    life.incoming.take(OFFER, 0, LEADER.read_piece(SENT, 0, 1000))
    disk.sync_fails = True

    def refuse(path: str) -> None:
        raise OSError(5, "the virtual disk fails", path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "remove", refuse)
        with pytest.raises(OSError, match="fails"):
            life.incoming.take(OFFER, 1000, LEADER.read_piece(SENT, 1000, 100))
    assert life.incoming.take(OFFER, 0, b"").stored == 0
    life.receive()
    life.install()
    disk.cut_power(NOTHING_UNSYNCED)
    assert_a_beginning(disk)


def own_snapshot(store: SegmentStore, folder: SnapshotFolder, disk: VirtualDisk) -> None:
    """A snapshot of all that is in the log, as a policy with `kept=1` has it written."""
    entry = store.header_at(store.last_index)
    header = SnapshotHeader(
        entry.index, entry.term, entry.pos, entry.size, entry.chain_crc, "g", "m/1"
    )
    assert folder.write(header, CHUNKS, lambda: False) is not None


def test_the_only_kept_snapshot_of_a_killed_process_is_durable_before_the_log_is_dropped() -> None:
    seen = 0
    for steps in range(MAX_STEPS):
        disk = VirtualDisk(Chance(3, "own"))
        life = Life(disk)
        life.store.append(1, Magic.NORMAL, [b"%300d" % number for number in range(60)])
        life.store.begin_sync(HardState(2, None, 59)).run()
        disk.steps_left = steps
        try:
            own_snapshot(life.store, life.folder, disk)
            break
        except PowerCut:
            disk.end_process()
        life = Life(disk)
        restored = restore_newest(life.folder, life.store, Machine(), "g")
        if restored is not None:
            seen += 1
            life.store.note_committed(restored.header.index)
            life.store.discard_before(restored.header.index)
            assert life.store.first_index > 0
            life.store.begin_sync(None).run()
        disk.cut_power(NOTHING_UNSYNCED)
        life = Life(disk)
        found = restore_newest(life.folder, life.store, Machine(), "g")
        assert (found is not None) == (restored is not None)
    assert seen == 1, "the step between the rename and the sync of the folder was not met"


def test_a_folder_sync_that_fails_ends_the_node_that_writes() -> None:
    disk = VirtualDisk(Chance(3, "own"))
    life = Life(disk)
    life.store.append(1, Magic.NORMAL, [b"entry"])
    life.store.begin_sync(HardState(1, None, 0)).run()
    disk.folder_sync_fails = True
    with pytest.raises(DiskFailed, match="sync the names in"):
        own_snapshot(life.store, life.folder, disk)


def test_a_folder_whose_names_cannot_be_synced_does_not_open() -> None:
    disk = with_a_log()
    SnapshotFolder(disk, NODE).open()
    disk.folder_sync_fails = True
    with pytest.raises(DiskFailed, match="sync the names in"):
        SnapshotFolder(disk, NODE).open()


def test_a_snapshot_that_an_operator_copied_is_synced_before_it_is_relied_on() -> None:
    disk = VirtualDisk(Chance(3, "own"))
    life = Life(disk)
    life.store.append(1, Magic.NORMAL, [b"%300d" % number for number in range(60)])
    life.store.begin_sync(HardState(2, None, 59)).run()
    own_snapshot(life.store, life.folder, disk)
    path = life.folder.file(59)
    content = disk.open(path).read(1 << 20, 0)
    disk.remove(path)
    disk.sync_folder(life.folder.path)
    disk.create(path).write(content, 0)  # and no sync, as `cp` does it
    disk.end_process()
    life = Life(disk)
    assert restore_newest(life.folder, life.store, Machine(), "g") is not None
    disk.cut_power(NOTHING_UNSYNCED)
    life = Life(disk)
    assert restore_newest(life.folder, life.store, Machine(), "g") is not None
