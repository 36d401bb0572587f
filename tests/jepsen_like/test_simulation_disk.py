import errno

import pytest

from dledger.entry import HEADER_BYTES, Magic
from dledger.errors import DataFolderLocked
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, PowerCut, VirtualDisk

NOTHING_KEPT = CrashStyle(keep=0.0, torn=0.0, names_in_order=True)
ALL_KEPT = CrashStyle(keep=1.0, torn=0.0, names_in_order=True)
ALWAYS_TORN = CrashStyle(keep=1.0, torn=1.0, names_in_order=True)


@pytest.fixture
def disk() -> VirtualDisk:
    disk = VirtualDisk(Chance(1, "a test"))
    disk.make_folder("/a")
    return disk


def durable_file(disk: VirtualDisk, content: bytes) -> None:
    file = disk.create("/a/f")
    file.write(content, 0)
    file.sync()
    disk.sync_folder("/a")


def content(disk: VirtualDisk) -> bytes:
    return disk.open("/a/f").read(1 << 20, 0)


def test_what_was_synced_survives_a_power_cut(disk: VirtualDisk) -> None:
    durable_file(disk, b"abc" * 1000)
    disk.cut_power(NOTHING_KEPT)
    assert content(disk) == b"abc" * 1000


def test_what_was_not_synced_is_gone_after_a_power_cut(disk: VirtualDisk) -> None:
    durable_file(disk, b"old" * 400)
    disk.open("/a/f").write(b"new", 600)
    assert content(disk)[600:603] == b"new"
    disk.cut_power(NOTHING_KEPT)
    assert content(disk) == b"old" * 400


def test_the_end_of_a_process_loses_nothing_and_saves_nothing(disk: VirtualDisk) -> None:
    durable_file(disk, b"old" * 400)
    disk.open("/a/f").write(b"new", 0)
    disk.end_process()
    assert content(disk)[:3] == b"new"
    disk.cut_power(NOTHING_KEPT)
    assert content(disk)[:3] == b"old"


def test_each_unsynced_sector_is_kept_or_lost_by_itself(disk: VirtualDisk) -> None:
    durable_file(disk, b"-" * 512 * 64)
    disk.open("/a/f").write(b"+" * 512 * 64, 0)
    disk.cut_power(CrashStyle(keep=0.5, torn=0.0, names_in_order=True))
    sectors = {content(disk)[start : start + 512] for start in range(0, 512 * 64, 512)}
    assert sectors == {b"-" * 512, b"+" * 512}


def test_only_the_sector_written_last_is_torn_and_only_at_its_end(disk: VirtualDisk) -> None:
    durable_file(disk, b"-" * 2048)
    disk.open("/a/f").write(b"+" * 2048, 0)
    disk.cut_power(ALWAYS_TORN)
    kept = content(disk)
    assert kept[:1536] == b"+" * 1536
    assert kept[1536:].rstrip(b"-") == b"+" * kept.count(b"+", 1536)


def test_a_name_is_durable_only_after_its_folder_is_synced(disk: VirtualDisk) -> None:
    disk.create("/a/f").sync()
    disk.cut_power(NOTHING_KEPT)
    assert disk.list("/a") == []
    with pytest.raises(FileNotFoundError):
        disk.open("/a/f")


def test_a_removal_can_be_undone_until_the_folder_is_synced(disk: VirtualDisk) -> None:
    durable_file(disk, b"abc")
    disk.remove("/a/f")
    disk.cut_power(NOTHING_KEPT)
    assert content(disk) == b"abc"
    disk.remove("/a/f")
    disk.sync_folder("/a")
    disk.cut_power(NOTHING_KEPT)
    assert disk.list("/a") == []


def test_a_rename_happens_whole_or_not_at_all(disk: VirtualDisk) -> None:
    durable_file(disk, b"abc")
    disk.rename("/a/f", "/a/g")
    disk.cut_power(NOTHING_KEPT)
    assert disk.list("/a") == ["f"]
    disk.rename("/a/f", "/a/g")
    disk.cut_power(ALL_KEPT)
    assert disk.list("/a") == ["g"]


def test_files_of_an_ended_process_are_dead(disk: VirtualDisk) -> None:
    durable_file(disk, b"abc")
    file = disk.open("/a/f")
    disk.end_process()
    with pytest.raises(PowerCut):
        file.write(b"x", 0)
    assert content(disk) == b"abc"


def test_the_power_goes_at_the_call_that_was_chosen(disk: VirtualDisk) -> None:
    file = disk.create("/a/f")
    disk.steps_left = 2
    file.write(b"a", 0)
    file.write(b"b", 1)
    with pytest.raises(PowerCut):
        file.write(b"c", 2)
    assert content(disk) in (b"ab", b"abc")


def test_a_failed_sync_is_told_once_and_saves_nothing(disk: VirtualDisk) -> None:
    durable_file(disk, b"abc")
    file = disk.open("/a/f")
    file.write(b"x", 0)
    disk.sync_fails = True
    with pytest.raises(OSError, match="virtual disk fails") as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    disk.cut_power(NOTHING_KEPT)
    assert content(disk) == b"abc"


def test_a_lock_is_held_until_it_is_closed_or_the_process_ends(disk: VirtualDisk) -> None:
    lock = disk.lock("/a/lock")
    with pytest.raises(DataFolderLocked):
        disk.lock("/a/lock")
    lock.close()
    disk.lock("/a/lock")
    disk.end_process()
    disk.lock("/a/lock")


# --- the store on it ----------------------------------------------------------------------------


def reopened(disk: VirtualDisk) -> SegmentStore:
    config = StoreConfig(
        segment_bytes=512, index_segment_bytes=256, max_body_bytes=100, spare_segments=0
    )
    return open_store(disk, "/data", config, "group", "n0")


def test_a_torn_no_op_without_its_sums_is_not_taken_for_an_entry_of_java() -> None:
    # The first 36 bytes of the header arrived, the two sums and the size did not: they read as
    # zeros, which in an entry of Java mean "not checked".
    disk = VirtualDisk(Chance(1, "a test"))
    store = reopened(disk)
    store.append(1, Magic.NOOP, [b""])
    store.begin_sync(store.hard_state._replace(term=1)).run()
    store.append(2, Magic.NOOP, [b""])
    pos = store.header_at(1).pos
    disk.open(f"/data/dledger-n0/data/{0:020d}").write(bytes(12), pos + 36)
    disk.end_process()
    again = reopened(disk)
    assert again.last_index == 0
    assert again.append(3, Magic.NOOP, [b""])[:2] == (1, 1)
    assert again.chain_at(1) != 0


def test_segments_that_a_power_cut_left_empty_are_no_reason_to_refuse() -> None:
    # Several files were created within one sync: their names are durable, their lengths are not.
    disk = VirtualDisk(Chance(1, "a test"))
    store = reopened(disk)
    store.append(1, Magic.NORMAL, [b"x" * 100])
    store.begin_sync(store.hard_state._replace(term=1)).run()
    for _ in range(12):
        store.append(1, Magic.NORMAL, [b"x" * 100])
    assert store.end_pos > 3 * 512
    disk.cut_power(NOTHING_KEPT)
    assert reopened(disk).last_index == 0


def test_what_recovery_kept_is_durable() -> None:
    # It was in the cache of a process that was killed; the power goes right after the restart.
    disk = VirtualDisk(Chance(1, "a test"))
    store = reopened(disk)
    for _ in range(7):
        store.append(1, Magic.NORMAL, [b"x" * 100])
    disk.end_process()
    assert reopened(disk).last_index == 6
    disk.cut_power(NOTHING_KEPT)
    again = reopened(disk)
    assert again.last_index == 6
    assert len(again.read(6, 6, 1)) == HEADER_BYTES + 100


def test_a_failed_sync_of_a_folder_leaves_its_names_to_chance_for_good(disk: VirtualDisk) -> None:
    disk.create("/a/f").sync()
    disk.folder_sync_fails = True
    with pytest.raises(OSError, match="fails to sync a folder"):
        disk.sync_folder("/a")
    disk.sync_folder("/a")  # who asks again is told that all is well
    assert disk.list("/a") == ["f"]
    disk.cut_power(NOTHING_KEPT)
    assert disk.list("/a") == []


def test_names_that_a_failed_sync_gave_up_may_be_there_after_a_power_cut(disk: VirtualDisk) -> None:
    disk.create("/a/f").sync()
    disk.folder_sync_fails = True
    with pytest.raises(OSError, match="fails to sync a folder"):
        disk.sync_folder("/a")
    disk.cut_power(ALL_KEPT)
    assert disk.list("/a") == ["f"]


def test_a_rename_that_fails_changes_nothing_and_is_told_once(disk: VirtualDisk) -> None:
    durable_file(disk, b"old")
    disk.rename_fails = True
    with pytest.raises(OSError, match="fails to rename"):
        disk.rename("/a/f", "/a/g")
    assert disk.list("/a") == ["f"]
    disk.rename("/a/f", "/a/g")
    assert disk.list("/a") == ["g"]


def test_a_file_moved_to_another_folder_is_durable_when_that_one_is_synced(
    disk: VirtualDisk,
) -> None:
    disk.make_folder("/b")
    file = disk.create("/a/f")
    file.write(b"new", 0)
    file.sync()
    disk.rename("/a/f", "/b/f")
    disk.sync_folder("/b")
    disk.cut_power(NOTHING_KEPT)
    assert disk.open("/b/f").read(3, 0) == b"new"


def test_a_process_killed_inside_a_disk_call_leaves_what_it_wrote(disk: VirtualDisk) -> None:
    durable_file(disk, b"old")
    file = disk.open("/a/f")
    disk.steps_left, disk.takes_power = 1, False
    file.write(b"new", 0)
    with pytest.raises(PowerCut):
        file.sync()
    disk.end_process()
    assert content(disk) == b"new"
    disk.cut_power(NOTHING_KEPT)
    assert content(disk) == b"old"
