"""When a node records its commit index, and what that costs its syncs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.entry import Magic
from dledger.node.housekeeping import DURABLE_INTERVAL_S, IDLE_INTERVAL_S, INTERVAL_S, Housekeeper
from dledger.store.disk import OsDisk
from dledger.store.disk_room import unwatched_room
from dledger.store.hard_state_file import newest_record
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from tests.dledger.node.stored_member import StoredMember

CONFIG = StoreConfig(
    segment_bytes=1 << 16, index_segment_bytes=1 << 16, max_body_bytes=1000, spare_segments=0
)


class Kept:
    """A store in which every entry that was synced is committed, and its housekeeper."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "dledger-n0" / "hard-state"
        self.store: SegmentStore = open_store(OsDisk(), str(folder), CONFIG, "g", "n0")
        self.housekeeper = Housekeeper(
            self.store,
            lambda: self.store.synced_index,
            0.0,
            lambda work: work()(),
            now=0.0,
            room=unwatched_room(OsDisk()),
        )

    def look(self) -> float:
        """Look when that is due; the time."""
        now = self.housekeeper.next_look_at
        self.housekeeper.look(now)
        return now

    def append(self) -> bool:
        """Append an entry and sync it; whether the sync had the record to write as well."""
        self.store.append(1, Magic.NORMAL, [b"an entry"])
        work = self.store.begin_sync(None)
        work.run()
        return work.record is not None

    @property
    def recorded(self) -> int:
        """The commit index on record, for readers of the folder."""
        newest = newest_record(self._path.read_bytes())
        assert newest is not None
        return newest[0].committed


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.store.close()


def test_the_commit_index_is_recorded_four_times_a_second(kept: Kept) -> None:
    times = []
    for index in range(12):
        kept.append()
        assert kept.recorded < index
        times.append(kept.look())
        assert kept.recorded == index
    assert times == [INTERVAL_S * number for number in range(1, 13)]
    assert INTERVAL_S == 0.25


def test_one_sync_a_second_writes_the_record_as_well(kept: Kept) -> None:
    times = []
    while kept.housekeeper.next_look_at <= 5.0:
        kept.append()
        now = kept.look()
        if kept.append():
            times.append(now)
    assert times == [DURABLE_INTERVAL_S * number for number in range(1, 6)]


def test_the_next_sync_makes_the_record_of_the_last_entries_durable(kept: Kept) -> None:
    kept.append()
    kept.look()
    while not kept.housekeeper.is_idle:
        kept.look()
    assert kept.store.hard_state.committed == -1
    assert kept.append()
    assert kept.store.hard_state.committed >= 0


def test_a_node_without_new_entries_writes_nothing(kept: Kept, tmp_path: Path) -> None:
    kept.append()
    while not kept.housekeeper.is_idle:
        kept.look()
    before = (tmp_path / "dledger-n0" / "hard-state").read_bytes()
    looks = [kept.look() for _ in range(5)]
    assert (tmp_path / "dledger-n0" / "hard-state").read_bytes() == before
    assert looks[1] - looks[0] == IDLE_INTERVAL_S


def test_what_a_sync_held_up_is_recorded_though_no_other_sync_follows(kept: Kept) -> None:
    kept.append()
    kept.store.append(1, Magic.NORMAL, [b"an entry"])
    work = kept.store.begin_sync(None)
    kept.look()
    assert kept.recorded == -1
    work.run()
    kept.look()
    assert kept.recorded == 1


def test_what_a_sync_held_up_is_recorded_when_the_next_one_begins(kept: Kept) -> None:
    kept.append()
    kept.store.append(1, Magic.NORMAL, [b"an entry"])
    work = kept.store.begin_sync(None)
    kept.look()
    work.run()
    work = kept.store.begin_sync(None)
    assert work.record is None
    assert kept.recorded == 0
    work.run()


def test_the_first_entry_after_a_rest_is_recorded_at_once() -> None:
    member = StoredMember("n0", ["n0"])
    member.replica.tick(1.0)
    member.sync(1.0)
    housekeeper = member.member.housekeeper
    member.member.applier.begin()
    while not housekeeper.is_idle:
        member.member.look(housekeeper.next_look_at)
    later = housekeeper.next_look_at - 1.0
    member.propose([b"an entry"])
    member.sync(later)
    member.member.applier.begin()
    assert housekeeper.next_look_at <= later
    member.member.look(later)
    assert not housekeeper.is_idle
    disk_record = newest_record(member.disk.open("/base/dledger-n0/hard-state").read(1 << 16, 0))
    assert disk_record is not None
    assert disk_record[0].committed == member.store.last_index
