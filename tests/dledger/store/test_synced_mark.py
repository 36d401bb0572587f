"""What a start does with damage to entries that were synced here, and to those that were not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.entry import HEADER_BYTES, Entry, Magic
from dledger.errors import LogCorrupt
from dledger.store.hard_state_file import MARK_AT, decode_mark, encode_mark
from dledger.store.open_store import open_store
from dledger.store.recovery_table import TABLE, Row, Verdict
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, PowerCut, VirtualDisk
from tests.dledger.store.stored_entries import read_all

CONFIG = StoreConfig(segment_bytes=8192, index_segment_bytes=320, max_body_bytes=3000)
NOTHING_UNSYNCED = CrashStyle(keep=0.0, torn=0.0, names_in_order=True)
ALL_OF_IT = CrashStyle(keep=1.0, torn=0.0, names_in_order=True)
FOLDER = "/base/dledger-n0"
# Its sums are wrong, and it reads as zeros where a sector ends, as a lost write does.
LIKE_A_LOST_WRITE = bytes(450)


def new_disk() -> VirtualDisk:
    return VirtualDisk(Chance(1, "disk"))


def opened(disk: VirtualDisk) -> SegmentStore:
    return open_store(disk, "/base", CONFIG, "g", "n0")


def proven(disk: VirtualDisk) -> SegmentStore:
    """A store of a member that votes and counts."""
    store = opened(disk)
    store.set_standing(Standing.PROVEN)
    store.begin_sync(HardState(1, "n0", -1)).run()
    return store


def append(store: SegmentStore, body: bytes, *, sync: bool = True) -> Entry:
    store.append(1, Magic.NORMAL, [body])
    if sync:
        store.begin_sync(None).run()
    return read_all(store)[-1]


def rot(disk: VirtualDisk, entry: Entry, within: int = HEADER_BYTES + 12) -> None:
    """One bit of an entry on the disk changes."""
    file = disk.open(f"{FOLDER}/data/{0:020d}")
    [byte] = file.read(1, entry.pos + within)
    file.write(bytes((byte ^ 1,)), entry.pos + within)
    file.sync()


def rows(verdict: Verdict) -> list[Row]:
    return [row for row in TABLE if row.verdict is verdict]


def test_an_entry_that_rots_before_an_intact_one_is_a_lost_promise() -> None:
    disk = new_disk()
    store = proven(disk)
    first = append(store, LIKE_A_LOST_WRITE)
    append(store, b"intact")
    disk.end_process()
    rot(disk, first)
    store = opened(disk)
    assert store.recovered.cut is not None
    assert store.recovered.cut.reason == rows(Verdict.CUT_AND_MARK)[0].reason
    assert (store.last_index, store.recovered.lost_through) == (-1, 1)
    assert store.standing is Standing.LOST


def test_the_last_entry_that_rots_is_a_lost_promise() -> None:
    disk = new_disk()
    store = proven(disk)
    append(store, b"intact")
    last = append(store, b"no zeros in here")
    disk.end_process()
    rot(disk, last)
    store = opened(disk)
    assert store.recovered.cut is not None
    assert store.recovered.cut.reason == rows(Verdict.CUT_AND_MARK)[1].reason
    assert (store.last_index, store.recovered.lost_through) == (0, 1)
    assert store.standing is Standing.LOST


def test_synced_entries_that_read_as_zeros_are_a_lost_promise() -> None:
    disk = new_disk()
    store = proven(disk)
    append(store, b"intact")
    last = append(store, b"gone")
    disk.end_process()
    file = disk.open(f"{FOLDER}/data/{0:020d}")
    file.write(bytes(HEADER_BYTES + 4), last.pos)
    store = opened(disk)
    assert store.recovered.cut is None
    assert (store.last_index, store.recovered.lost_through) == (0, 1)
    assert store.standing is Standing.LOST


def test_an_entry_that_was_never_synced_is_cut_and_no_promise_is_lost() -> None:
    """A lost write before an intact one, both behind the last sync: any power cut may leave it."""
    disk = new_disk()
    store = proven(disk)
    append(store, b"synced")
    torn = append(store, LIKE_A_LOST_WRITE, sync=False)
    append(store, b"intact", sync=False)
    disk.cut_power(ALL_OF_IT)
    rot(disk, torn)
    store = opened(disk)
    assert store.recovered.cut is not None
    assert store.recovered.cut.reason == rows(Verdict.CUT)[0].reason
    assert (store.last_index, store.recovered.lost_through) == (0, -1)
    assert store.standing is Standing.PROVEN


def test_a_torn_write_at_the_end_is_cut_and_no_promise_is_lost() -> None:
    disk = new_disk()
    store = proven(disk)
    torn = append(store, b"no zeros in here", sync=False)
    disk.cut_power(ALL_OF_IT)
    rot(disk, torn)
    store = opened(disk)
    assert store.recovered.cut is not None
    assert store.recovered.cut.reason == rows(Verdict.CUT)[1].reason
    assert store.standing is Standing.PROVEN


def test_a_broken_entry_that_looks_like_no_lost_write_is_refused_before_intact_ones() -> None:
    disk = new_disk()
    store = proven(disk)
    first = append(store, b"no zeros in here")
    append(store, b"intact")
    disk.end_process()
    rot(disk, first)
    with pytest.raises(LogCorrupt, match="intact entries follow"):
        opened(disk)


def test_a_broken_entry_that_is_recorded_as_committed_is_refused() -> None:
    disk = new_disk()
    store = proven(disk)
    first = append(store, LIKE_A_LOST_WRITE)
    store.note_committed(first.index)
    store.save_committed()
    disk.end_process()
    rot(disk, first)
    with pytest.raises(LogCorrupt, match="recorded as committed"):
        opened(disk)


def test_the_folder_is_marked_before_anything_is_cut() -> None:
    """Whatever step the power cuts: no start finds a shorter log and no mark."""
    disk = new_disk()
    for steps in range(40):
        disk = new_disk()
        store = proven(disk)
        first = append(store, LIKE_A_LOST_WRITE)
        append(store, b"intact")
        store.close()
        disk.end_process()
        rot(disk, first)
        disk.steps_left = steps
        if _opens(disk):
            break
        disk.cut_power(NOTHING_UNSYNCED)
        assert opened(disk).standing is Standing.LOST
    assert steps > 10


def _opens(disk: VirtualDisk) -> bool:
    try:
        opened(disk)
    except PowerCut:
        return False
    return True


def cut_and_replaced(store: SegmentStore) -> None:
    store.truncate_after(1)
    append(store, LIKE_A_LOST_WRITE, sync=False)
    append(store, b"intact", sync=False)


def cut_while_a_sync_runs(store: SegmentStore) -> None:
    append(store, b"more", sync=False)
    work = store.begin_sync(None)
    store.truncate_after(1)
    work.run()
    store.save_committed()  # takes over what the sync says
    append(store, LIKE_A_LOST_WRITE, sync=False)
    append(store, b"intact", sync=False)


@pytest.mark.parametrize("cut", [cut_and_replaced, cut_while_a_sync_runs])
def test_what_replaces_a_cut_entry_counts_as_synced_only_after_its_own_sync(
    cut: Callable[[SegmentStore], None],
) -> None:
    disk = new_disk()
    store = proven(disk)
    for _ in range(5):
        append(store, b"entry")
    store.begin_sync(HardState(2, None, -1)).run()  # the mark is durable
    cut(store)
    torn = read_all(store)[2]
    disk.cut_power(ALL_OF_IT)
    rot(disk, torn)
    store = opened(disk)
    assert (store.last_index, store.recovered.lost_through) == (1, -1)
    assert store.standing is Standing.PROVEN


def test_a_member_that_was_marked_is_not_marked_again_after_it_is_proven() -> None:
    disk = new_disk()
    store = proven(disk)
    last = append(store, LIKE_A_LOST_WRITE)
    store.close()
    disk.end_process()
    rot(disk, last)
    store = opened(disk)
    assert store.standing is Standing.LOST
    store.set_standing(Standing.PROVEN)
    disk.cut_power(NOTHING_UNSYNCED)
    assert opened(disk).standing is Standing.PROVEN


def test_a_folder_without_a_mark_is_judged_as_before() -> None:
    """Programs before the mark left files without it."""
    disk = new_disk()
    store = proven(disk)
    last = append(store, LIKE_A_LOST_WRITE)
    store.close()
    disk.end_process()
    disk.open(f"{FOLDER}/hard-state").write(bytes(20), MARK_AT)
    rot(disk, last)
    store = opened(disk)
    assert (store.last_index, store.recovered.lost_through) == (-1, -1)
    assert store.standing is Standing.PROVEN


def test_a_mark_that_is_torn_at_any_byte_says_nothing() -> None:
    whole = bytes(MARK_AT) + encode_mark(4711)
    assert decode_mark(whole) == 4711
    assert decode_mark(bytes(MARK_AT) + encode_mark(-1)) == -1
    for kept in range(MARK_AT, len(whole)):
        assert decode_mark(whole[:kept]) == -1
        assert decode_mark(whole[:kept].ljust(len(whole), b"\0")) == -1
        flipped = bytearray(whole)
        flipped[kept] ^= 1
        assert decode_mark(bytes(flipped)) == -1
