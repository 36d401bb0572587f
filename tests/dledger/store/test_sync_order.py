"""What a sync makes durable first, and what it says of a log that was cut meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import trio

from dledger.core.hard_state import HardState
from dledger.entry import Magic
from dledger.store.disk import DiskFile
from dledger.store.hard_state_file import HardStateFile, StoreRecord, newest_record
from dledger.store.log_durability import SegmentSyncWork
from dledger.store.store_health import StoreHealth
from dledger.waits.leadership_watch import LeadershipWatch
from tests.dledger.node.stored_member import StoredMember

FOLDER = "/base/dledger-n0"


class Noted:
    """A file that says when it was made durable."""

    def __init__(self, path: str, done: list[str]) -> None:
        self.path = path
        self._done = done

    def sync(self) -> None:
        self._done.append(self.path)

    def write(self, record: StoreRecord, *, durable: bool) -> None:
        assert durable
        self.sync()

    def mark_synced(self, index: int) -> None:
        self._done.append(f"mark {index}")


def test_the_data_are_durable_before_the_record_that_counts_on_them() -> None:
    done: list[str] = []
    files = cast("Sequence[DiskFile]", [Noted("data", done), Noted("more data", done)])
    record = StoreRecord("g", "n0", 4096, 320, 3, "n1", 7)
    hard_state_file = cast("HardStateFile", Noted("record", done))
    health = StoreHealth("data")
    work = SegmentSyncWork(
        7, 0, HardState(3, "n1"), [*files], False, record, hard_state_file, health
    )
    work.run()
    assert done == ["data", "more data", "mark 7", "record"]


def test_a_sync_from_before_a_cut_says_nothing_of_what_was_written_since() -> None:
    member = StoredMember("n0", ["n0", "n1", "n2"])
    store = member.store
    store.append(1, Magic.NORMAL, [b"one", b"two", b"three", b"four"])
    work = store.begin_sync(HardState(1, None))
    store.truncate_after(0)
    store.append(2, Magic.NORMAL, [b"another", b"and another"])
    work.run()
    store.note_committed(2)
    store.save_committed()
    newest = newest_record(member.disk.open(f"{FOLDER}/hard-state").read(1 << 16, 0))
    assert newest is not None
    assert newest[0].committed == -1


async def test_a_leader_that_has_applied_nothing_of_its_own_term_is_not_ready() -> None:
    member = StoredMember("n0", ["n0"])
    member.store.append(1, Magic.NORMAL, [b"of an earlier leader"])
    member.store.begin_sync(HardState(1, "n0", 0)).run()
    member.cut_power(trio.current_time())
    watch = LeadershipWatch("g", member.replica)
    member.replica.tick(trio.current_time())
    member.sync(trio.current_time())
    assert member.replica.state.committed == 0  # by the record
    member.replica.applied_to(0)
    assert not watch.is_ready_leader
    member.sync(trio.current_time())
    member.replica.applied_to(1)
    assert watch.is_ready_leader
