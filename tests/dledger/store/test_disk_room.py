"""A disk that is full: the reserve, the appends that are refused, and room again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dledger.entry import Magic
from dledger.errors import DiskFailed, DiskFull
from dledger.store.disk import OsDisk
from dledger.store.disk_room import SHORT_LOOK_S, DiskRoom, Reserve, unwatched_room
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from tests.dledger.full_disk import FullDisk

RESERVE = 1 << 16
CONFIG = StoreConfig(
    segment_bytes=1 << 17, index_segment_bytes=1 << 12, max_body_bytes=1 << 15, spare_segments=0
)
ROOM = 1 << 19


def room_on(disk: FullDisk, folder: Path) -> DiskRoom:
    reserve = Reserve(disk, str(folder / "dledger-n0"), RESERVE)
    return DiskRoom(disk, reserve, lambda: disk.free_bytes)


def opened(disk: FullDisk, folder: Path) -> tuple[SegmentStore, DiskRoom]:
    room = room_on(disk, folder)
    room.begin()
    store = open_store(room.disk, str(folder), CONFIG, "g", "n0", disk)
    room.opened()
    return store, room


def fill(store: SegmentStore) -> DiskFull:
    """Append until the disk is full; why no more was taken."""
    while True:
        try:
            store.append(1, Magic.NORMAL, [os.urandom(5000)] * 8)
        except DiskFull as refused:
            return refused


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_refuses_an_append_whole_and_the_store_goes_on(
    tmp_path: Path, number: int
) -> None:
    disk = FullDisk(ROOM, number)
    store, room = opened(disk, tmp_path)
    refused = fill(store)
    assert refused.retry_safe
    assert room.is_short
    assert disk.free_bytes >= RESERVE // 2
    last, end = store.last_index, store.end_pos
    with pytest.raises(DiskFull):
        store.append(1, Magic.NORMAL, [os.urandom(30_000)] * 6)
    assert (store.last_index, store.end_pos) == (last, end)
    disk.room_bytes += 1 << 18
    store.append(1, Magic.NORMAL, [b"taken again"])
    store.begin_sync(None).run()
    store.close()
    again, _ = opened(disk, tmp_path)
    assert again.last_index == last + 1
    assert again.recovered.cut is None
    again.close()


def test_behind_the_end_of_a_log_that_found_no_room_all_is_zero(tmp_path: Path) -> None:
    disk = FullDisk(ROOM)
    store, _ = opened(disk, tmp_path)
    fill(store)
    end = store.end_pos
    data = b"".join(
        file.read_bytes() for file in sorted((tmp_path / "dledger-n0" / "data").iterdir())
    )
    assert not any(data[end:])
    store.close()


def test_a_member_that_ended_on_a_full_disk_starts_again_by_its_reserve(tmp_path: Path) -> None:
    disk = FullDisk(ROOM)
    store, room = opened(disk, tmp_path)
    store.append(1, Magic.NORMAL, [os.urandom(5000)])
    store.close()
    disk.room_bytes -= disk.free_bytes  # another program fills it meanwhile
    store, room = opened(disk, tmp_path)
    assert room.is_short
    assert disk.free_bytes > RESERVE // 2
    store.append(1, Magic.NORMAL, [b"of a leader"])
    store.begin_sync(None).run()
    store.close()


def test_on_a_full_disk_half_of_the_reserve_is_for_entries(tmp_path: Path) -> None:
    disk = FullDisk(ROOM)
    store, room = opened(disk, tmp_path)
    assert all(room.takes(ROOM) for _ in range(9))
    fill(store)
    taken = sum(1000 for _ in range(RESERVE // 1000) if room.takes(1000))
    assert RESERVE // 2 - 1000 < taken <= RESERVE // 2
    assert not room.takes(1000)
    store.close()


def test_a_disk_that_is_nearly_full_is_short_before_a_write_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk(ROOM)
    store, room = opened(disk, tmp_path)
    assert not room.look(0.0)
    disk.room_bytes -= disk.free_bytes - RESERVE + 1
    assert room.look(1.0)
    assert room.is_short
    assert not room.look(1.0 + SHORT_LOOK_S)  # not roomy yet
    disk.room_bytes += RESERVE // 2
    assert not room.look(1.1 + SHORT_LOOK_S)  # not looked at yet
    assert room.look(1.0 + 2 * SHORT_LOOK_S)
    assert not room.is_short
    assert Reserve(disk, str(tmp_path / "dledger-n0"), RESERVE).is_made
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    store.close()


def test_a_quota_ends_when_the_reserve_can_be_taken_up_again(tmp_path: Path) -> None:
    disk = FullDisk(ROOM, errno.EDQUOT)
    store, _ = opened(disk, tmp_path)
    # The file system itself has room, which is all that it tells.
    reserve = Reserve(disk, str(tmp_path / "dledger-n0"), RESERVE)
    room = DiskRoom(disk, reserve, lambda: 1 << 40)
    room.disk.create(str(tmp_path / "filler")).write(b"x", 0)
    disk.room_bytes -= disk.free_bytes
    file = room.disk.create(str(tmp_path / "other"))
    file.write(bytes(RESERVE // 2), 0)
    assert room.is_short
    assert not room.look(1.0)
    disk.room_bytes += RESERVE
    assert room.look(1.0 + SHORT_LOOK_S)
    store.close()


def test_a_sync_that_finds_no_room_is_never_tried_again(tmp_path: Path) -> None:
    disk = FullDisk(ROOM)
    store, room = opened(disk, tmp_path)
    store.append(1, Magic.NORMAL, [b"x"])
    work = store.begin_sync(None)
    calls = []

    def fails() -> None:
        calls.append(1)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    work._files[0].sync = fails  # type: ignore[method-assign]
    with pytest.raises(DiskFailed):
        work.run()
    with pytest.raises(DiskFailed):
        store.append(1, Magic.NORMAL, [b"y"])
    assert calls == [1]
    assert not room.is_short
    store.close()


def test_the_reserve_takes_up_real_room(tmp_path: Path) -> None:
    reserve = Reserve(OsDisk(), str(tmp_path), 1 << 20)
    reserve.make()
    assert reserve.is_made
    assert os.stat(tmp_path / "reserve").st_blocks * 512 >= 1 << 20
    assert reserve.give_up()
    assert not reserve.give_up()
    assert not reserve.is_made


def test_a_file_system_that_cannot_allocate_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_descriptor: int, _at: int, _size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", refuses)
    reserve = Reserve(OsDisk(), str(tmp_path), (3 << 20) + 5)
    reserve.make()
    assert reserve.is_made
    assert os.stat(tmp_path / "reserve").st_blocks * 512 >= 3 << 20


def test_a_spare_segment_is_no_reason_for_a_disk_to_be_short(tmp_path: Path) -> None:
    disk = FullDisk(ROOM)
    store, room = opened(disk, tmp_path)
    assert room.has_room_beside(disk.free_bytes - 2 * RESERVE)
    assert not room.has_room_beside(disk.free_bytes - RESERVE)
    assert unwatched_room(disk).has_room_beside(1 << 50)
    store.close()
