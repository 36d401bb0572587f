"""A snapshot's file that arrives in pieces: order, restarts, broken files, power cuts."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from dledger.core.snapshot.snapshot_offer import LogBegin, SnapshotOffer
from dledger.store.disk import Disk, OsDisk
from dledger.store.incoming_snapshot import IncomingSnapshot, Received, SnapshotUnwanted
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from dledger.store.snapshot_format import SnapshotHeader
from tests.dledger.store.test_store_power_cut import LosingDisk, PowerCut

CHUNKS = [b"chunk %d " % number * 50 for number in range(40)]
BEGIN = LogBegin(7, 1, 99, 4096)


def made(folder: SnapshotFolder, index: int = 10, machine: str = "m/1") -> Snapshot:
    """A snapshot as a leader has it."""
    folder.open()
    header = SnapshotHeader(index, 2, 5000, 60, 1234, "g", machine)
    snapshot = folder.write(header, CHUNKS, lambda: False)
    assert snapshot is not None
    return snapshot


def offer_of(snapshot: Snapshot) -> SnapshotOffer:
    header = snapshot.header
    return SnapshotOffer(header.index, header.term, header.chain_crc, snapshot.size_bytes, BEGIN)


class Pair:
    """A leader's folder and a follower's."""

    def __init__(self, base: Path) -> None:
        self.leader = SnapshotFolder(OsDisk(), str(base / "leader"))
        self.snapshot = made(self.leader)
        self.offer = offer_of(self.snapshot)
        self.folder = SnapshotFolder(OsDisk(), str(base / "follower"))
        self.folder.open()
        self.path = base / "follower" / "snapshots"

    def incoming(self, machine: str = "m/1") -> IncomingSnapshot:
        return IncomingSnapshot(self.folder, "g", machine, 2048)

    def piece(self, offset: int, size: int) -> bytes:
        return self.leader.read_piece(self.snapshot, offset, size)

    def send(self, incoming: IncomingSnapshot, size: int = 1000) -> Received:
        """All that is missing, in pieces."""
        received = incoming.take(self.offer, 0, b"")
        while received.snapshot is None:
            piece = self.piece(received.stored, size)
            received = incoming.take(self.offer, received.stored, piece)
        return received

    def files(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_a_file_in_pieces_becomes_a_snapshot_once_it_is_whole(pair: Pair) -> None:
    received = pair.send(pair.incoming())
    assert received.snapshot is not None
    assert received.snapshot.header == pair.snapshot.header
    assert list(pair.folder.reader(received.snapshot).chunks()) == CHUNKS
    assert pair.files() == [f"{10:020d}.snapshot"]


def test_only_the_piece_that_follows_is_taken(pair: Pair) -> None:
    incoming = pair.incoming()
    assert incoming.take(pair.offer, 500, pair.piece(500, 100)).stored == 0
    assert incoming.take(pair.offer, 0, pair.piece(0, 100)).stored == 100
    assert incoming.take(pair.offer, 200, pair.piece(200, 100)).stored == 100
    assert incoming.take(pair.offer, 0, pair.piece(0, 100)).stored == 100
    assert pair.send(incoming).snapshot is not None


def test_a_restarted_member_goes_on_with_what_was_synced(pair: Pair) -> None:
    incoming = pair.incoming()
    for offset in range(0, 7000, 1000):
        incoming.take(pair.offer, offset, pair.piece(offset, 1000))
    incoming.close()
    pair.folder.open()
    again = pair.incoming()
    assert again.take(pair.offer, 0, b"").stored == 6144
    assert pair.send(again).snapshot is not None


def test_another_snapshot_starts_over_and_removes_the_part_of_the_first(pair: Pair) -> None:
    incoming = pair.incoming()
    incoming.take(pair.offer, 0, pair.piece(0, 3000))
    [part] = pair.files()
    assert part.endswith(".part")
    newer = pair.offer._replace(index=11, chain=5)
    assert incoming.take(newer, 0, b"").stored == 0
    [other] = pair.files()
    assert other != part
    incoming.close()


def test_a_snapshot_that_is_here_already_is_not_sent_again(pair: Pair) -> None:
    pair.send(pair.incoming())
    again = pair.incoming().take(pair.offer, 0, b"")
    assert again.snapshot is not None
    assert again.stored == pair.offer.size


def test_a_broken_snapshot_of_the_same_entry_is_replaced(pair: Pair) -> None:
    path = pair.path / f"{10:020d}.snapshot"
    content = bytearray(pair.piece(0, pair.offer.size))
    content[-30] ^= 1
    path.write_bytes(content)
    received = pair.incoming().take(pair.offer, 0, b"")
    assert received == Received(0, None)
    assert pair.send(pair.incoming()).snapshot is not None
    assert path.read_bytes() == pair.piece(0, pair.offer.size)


def test_a_piece_that_changed_on_the_way_to_the_disk_is_found_before_use(pair: Pair) -> None:
    incoming = pair.incoming()
    content = bytearray(pair.piece(0, pair.offer.size))
    content[len(content) // 2] ^= 1
    with pytest.raises(SnapshotUnwanted, match="broken"):
        incoming.take(pair.offer, 0, bytes(content))
    assert pair.files() == []
    assert pair.send(incoming).snapshot is not None


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"machine": "m/2"}, "has the format"), ({"group": "other"}, "of group")],
)
def test_a_snapshot_that_the_member_cannot_use_is_refused(
    pair: Pair, change: dict[str, str], problem: str
) -> None:
    names = {"group": "g", "machine": "m/1", **change}
    incoming = IncomingSnapshot(pair.folder, names["group"], names["machine"])
    with pytest.raises(SnapshotUnwanted, match=problem):
        pair.send(incoming)
    assert not any(name.endswith(".snapshot") for name in pair.files())
    incoming.close()


def test_a_file_of_another_entry_than_offered_is_refused(pair: Pair) -> None:
    incoming = pair.incoming()
    pair.offer = pair.offer._replace(index=12)
    with pytest.raises(SnapshotUnwanted, match="not of the offered one"):
        pair.send(incoming)
    incoming.close()


@pytest.mark.parametrize("block", range(4))
def test_whatever_step_the_power_cuts_what_is_a_snapshot_is_whole(
    block: int, tmp_path: Path
) -> None:
    leader = Pair(tmp_path)
    whole = 0
    for seed in range(block * 25, block * 25 + 25):
        random = Random(seed)
        disk: LosingDisk = LosingDisk(random)
        for _ in range(6):
            disk.steps_left = random.randint(1, 30)
            try:
                whole += receive(leader, disk)
                break
            except PowerCut:
                disk.cut_power()
        folder = SnapshotFolder(disk, "/n1")
        assert folder.problems() == []
        disk.steps_left = -1
        for _ in range(2):  # what the disk kept of a part may be broken: then it begins again
            try:
                whole += receive(leader, disk)
                break
            except SnapshotUnwanted:
                assert folder.problems() == []
        assert folder.indexes() == [10]
    assert whole > 10


def receive(leader: Pair, disk: Disk) -> int:
    folder = SnapshotFolder(disk, "/n1")
    folder.open()
    incoming = IncomingSnapshot(folder, "g", "m/1", 4096)
    return int(leader.send(incoming, 700).snapshot is not None)
