"""Disk errors: terminal at the first one, and nothing acknowledged is lost."""

from __future__ import annotations

import errno
import os
import threading
import traceback
from pathlib import Path

import pytest

from dledger.core.hard_state import HardState
from dledger.entry import HEADER_BYTES, Magic, decode_entries
from dledger.errors import DiskFailed, DiskFull, InvariantBroken, LogCorrupt, OutsideLog
from dledger.store.disk import DiskFile, OsDisk, OsDiskFile
from dledger.store.open_store import open_store
from dledger.store.segment import MAX_OPEN_FILES, file_name
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig

CONFIG = StoreConfig(segment_bytes=1024, index_segment_bytes=320, max_body_bytes=500)


class FailingFile:
    """A file whose next call of one kind fails."""

    def __init__(self, file: DiskFile, disk: FailingDisk) -> None:
        self._file, self._disk = file, disk

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        return self._file.size()

    def read(self, size: int, at: int) -> bytes:
        self._disk.meet("read", self.path)
        return self._file.read(size, at)

    def write(self, data: bytes, at: int) -> None:
        self._disk.meet("write", self.path)
        self._file.write(data, at)

    def grow(self, size: int) -> None:
        self._disk.meet("grow", self.path)
        self._file.grow(size)

    def allocate(self, size: int) -> None:
        self._disk.meet("allocate", self.path)
        self._file.allocate(size)

    def sync(self) -> None:
        self._disk.meet("sync", self.path)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class FailingDisk(OsDisk):
    """Fails the n-th call of a kind from now on, with an error number."""

    def __init__(self) -> None:
        self.kind, self.calls, self.number = "", 0, errno.EIO
        self.events: list[tuple[str, str]] = []

    def fail(self, kind: str, after: int = 0, number: int = errno.EIO) -> None:
        self.kind, self.calls, self.number = kind, after, number

    def meet(self, kind: str, path: str) -> None:
        self.events.append((kind, path.rpartition("/dledger-n0/")[2]))
        if kind != self.kind:
            return
        self.calls -= 1
        if self.calls < 0:
            self.kind = ""
            raise OSError(self.number, os.strerror(self.number))

    def open(self, path: str, *, writable: bool = True) -> FailingFile:  # type: ignore[override]
        return FailingFile(super().open(path, writable=writable), self)

    def create(self, path: str) -> FailingFile:  # type: ignore[override]
        self.meet("create", path)
        return FailingFile(super().create(path), self)

    def remove(self, path: str) -> None:
        self.meet("remove", path)
        super().remove(path)

    def sync_folder(self, path: str) -> None:
        self.meet("sync_folder", path)
        super().sync_folder(path)


def open_one(disk: OsDisk, base: Path) -> SegmentStore:
    return open_store(disk, str(base), CONFIG, "g", "n0")


def bodies(count: int) -> list[bytes]:
    return [b"body %d " % i * 12 for i in range(count)]


@pytest.mark.parametrize("kind", ["write", "create", "grow"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("after", [0, 1])
def test_a_write_that_finds_no_room_is_refused_and_the_store_goes_on(
    tmp_path: Path, kind: str, number: int, after: int
) -> None:
    disk = FailingDisk()
    store = open_one(disk, tmp_path)
    store.append(1, Magic.NORMAL, bodies(4))
    disk.fail(kind, after, number)
    with pytest.raises(DiskFull) as refused:
        store.append(1, Magic.NORMAL, bodies(60))
    assert refused.value.retry_safe
    assert store.last_index == 3
    store.append(1, Magic.NORMAL, bodies(60))
    store.begin_sync(HardState(1, "n0")).run()
    store.close()
    again = open_one(OsDisk(), tmp_path)
    assert again.recovered.cut is None
    read = decode_entries(again.read(0, 3, 1 << 20))
    assert [entry.body for entry in read] == bodies(4)
    assert again.last_index == 63
    again.close()


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        *((kind, errno.EIO) for kind in ("write", "create", "grow", "sync_folder")),
        ("sync_folder", errno.ENOSPC),
    ],
)
@pytest.mark.parametrize("after", [0, 1])
def test_a_failed_write_ends_the_store_and_keeps_what_was_synced(
    tmp_path: Path, kind: str, number: int, after: int
) -> None:
    disk = FailingDisk()
    store = open_one(disk, tmp_path)
    store.append(1, Magic.NORMAL, bodies(4))
    store.begin_sync(HardState(1, "n0")).run()
    disk.fail(kind, after, number)
    with pytest.raises(DiskFailed) as failed:
        store.append(1, Magic.NORMAL, bodies(60))
    assert failed.value.errno == number
    assert store.last_index == 3
    for call in (
        lambda: store.append(1, Magic.NORMAL, bodies(1)),
        lambda: store.begin_sync(None),
        lambda: store.read(0, 0, 1),
        lambda: store.truncate_after(0),
        store.save_committed,
    ):
        with pytest.raises(DiskFailed):
            call()
    store.close()
    again = open_one(OsDisk(), tmp_path)
    assert again.last_index >= 3
    assert [entry.body for entry in decode_entries(again.read(0, 3, 1 << 20))] == bodies(4)
    assert again.hard_state[:2] == (1, "n0")
    again.close()


def test_each_call_after_a_failure_raises_an_error_of_its_own(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = open_one(disk, tmp_path)
    disk.fail("write")
    with pytest.raises(DiskFailed) as failed:
        store.append(1, Magic.NORMAL, bodies(1))
    frames = len(list(traceback.walk_tb(failed.value.__traceback__)))
    later = []
    for _ in range(3):
        with pytest.raises(DiskFailed) as again:
            store.save_committed()
        later.append(again.value)
        assert vars(again.value) == vars(failed.value)
        assert str(again.value) == str(failed.value)
        assert again.value.__cause__ is failed.value
    assert len({id(error) for error in (failed.value, *later)}) == 4
    assert len(list(traceback.walk_tb(failed.value.__traceback__))) == frames
    store.close()


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_failed_sync_is_never_retried(tmp_path: Path, after: int) -> None:
    disk = FailingDisk()
    store = open_one(disk, tmp_path)
    store.append(1, Magic.NORMAL, bodies(9))
    work = store.begin_sync(HardState(4, "n1"))
    disk.fail("sync", after)
    with pytest.raises(DiskFailed):
        work.run()
    with pytest.raises(DiskFailed):
        store.begin_sync(HardState(4, "n1"))
    with pytest.raises(DiskFailed):
        store.append(4, Magic.NORMAL, bodies(1))
    with pytest.raises(InvariantBroken):
        work.run()
    store.close()


@pytest.mark.parametrize("kind", ["write", "sync", "remove", "sync_folder", "read"])
def test_a_failed_truncation_ends_the_store(tmp_path: Path, kind: str) -> None:
    disk = FailingDisk()
    store = open_one(disk, tmp_path)
    store.append(1, Magic.NORMAL, bodies(40))
    disk.fail(kind)
    with pytest.raises(DiskFailed):
        store.truncate_after(5)
    with pytest.raises(DiskFailed):
        store.truncate_after(5)
    store.close()
    again = open_one(OsDisk(), tmp_path)
    assert again.last_index >= 5
    assert [entry.body for entry in decode_entries(again.read(0, 5, 1000))][:2] == bodies(2)
    again.close()


@pytest.mark.parametrize("kind", ["read", "write", "sync", "create", "sync_folder", "allocate"])
def test_a_failed_open_says_so_and_releases_the_folder(tmp_path: Path, kind: str) -> None:
    disk = FailingDisk()
    disk.fail(kind)
    if kind == "read":
        open_one(OsDisk(), tmp_path).close()
    with pytest.raises(DiskFailed):
        open_one(disk, tmp_path)
    open_one(OsDisk(), tmp_path).close()


def test_an_unreadable_block_ends_the_store(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = open_one(disk, tmp_path)
    store.append(1, Magic.NORMAL, bodies(4))
    with pytest.raises(OutsideLog):
        store.read(4, 4, 1)
    disk.fail("read")
    with pytest.raises(DiskFailed):
        store.read(1, 2, 1000)
    store.close()


@pytest.mark.parametrize("rotten", [4, HEADER_BYTES + 7])  # in the header, in the body
@pytest.mark.parametrize("asked", [0, HEADER_BYTES, HEADER_BYTES + 9])
def test_rot_of_an_entry_is_found_by_a_check_of_any_of_its_bytes(
    tmp_path: Path, rotten: int, asked: int
) -> None:
    store = open_one(OsDisk(), tmp_path)
    store.append(1, Magic.NORMAL, bodies(4))
    begin, end = store.header_at(2).pos, store.end_pos
    with (tmp_path / "dledger-n0" / "data" / file_name(0)).open("r+b") as segment:
        segment.seek(begin + rotten)
        segment.write(b"?")
    store.check_at(begin - 1)
    store.check_at(end - 1)
    with pytest.raises(OutsideLog):
        store.check_at(end)
    with pytest.raises(LogCorrupt):
        store.check_at(begin + asked)


def test_rot_under_an_index_unit_is_found_by_reads(tmp_path: Path) -> None:
    store = open_one(OsDisk(), tmp_path)
    store.append(1, Magic.NORMAL, bodies(4))
    store.close()
    store = open_one(OsDisk(), tmp_path)
    store.header_at(1)
    (tmp_path / "dledger-n0" / "index" / file_name(0)).write_bytes(bytes(320))
    with pytest.raises(LogCorrupt):
        store.header_at(1)
    with pytest.raises(LogCorrupt):
        store.append(1, Magic.NORMAL, bodies(1))
    store.close()


def test_appends_and_truncations_go_on_while_a_sync_runs(tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()

    class SlowFile(FailingFile):
        def sync(self) -> None:
            if threading.current_thread() is not threading.main_thread():
                entered.set()
                assert leave.wait(10)
            super().sync()

    class SlowDisk(FailingDisk):
        def create(self, path: str) -> SlowFile:  # type: ignore[override]
            return SlowFile(OsDisk.create(self, path), self)

    store = open_one(SlowDisk(), tmp_path)
    store.append(1, Magic.NORMAL, bodies(60))
    work = store.begin_sync(HardState(1, "n0"))
    thread = threading.Thread(target=work.run)
    thread.start()
    assert entered.wait(10)
    with pytest.raises(InvariantBroken):
        store.begin_sync(None)
    store.truncate_after(20)
    store.append(2, Magic.NORMAL, bodies(300))
    assert len(decode_entries(store.read(100, 110, 1 << 20))) > 1
    leave.set()
    thread.join()
    assert (work.index, work.epoch, store.epoch) == (59, 0, 1)
    store.note_committed(320)
    store.save_committed()
    assert store.hard_state == HardState(1, "n0", -1)
    store.begin_sync(None).run()
    store.close()
    again = open_one(OsDisk(), tmp_path)
    assert again.last_index == 320
    assert again.hard_state.committed == 320
    again.close()


def test_few_files_are_open_however_long_the_log_is(tmp_path: Path) -> None:
    store = open_one(OsDisk(), tmp_path)
    for _ in range(30):
        store.append(1, Magic.NORMAL, bodies(60))
        store.begin_sync(None).run()
    assert len(list((tmp_path / "dledger-n0" / "data").iterdir())) > 3 * MAX_OPEN_FILES
    for index in range(0, store.last_index, 7):
        assert decode_entries(store.read(index, index, 1))[0].index == index
    ours = [
        link
        for link in Path("/proc/self/fd").iterdir()
        if link.is_symlink() and str(tmp_path) in os.readlink(link)
    ]
    assert len(ours) <= 2 * MAX_OPEN_FILES + 2
    store.close()


def test_short_writes_and_reads_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    file = disk.create(str(tmp_path / "file"))
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data[:3]), at))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 4), at))
    file.write(b"0123456789abcdef", 5)
    assert file.read(16, 5) == b"0123456789abcdef"
    assert file.read(100, 15) == b"abcdef"
    assert file.read(5, 100) == b""
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="no more bytes"):
        file.write(b"x", 0)
    file.close()
    file.close()


def test_an_error_of_the_disk_names_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    OsDisk().create(path).close()
    file = OsDisk().open(path, writable=False)
    with pytest.raises(OSError, match="file") as failed:
        file.write(b"x", 0)
    assert failed.value.filename == path
    file.close()
    assert isinstance(file, OsDiskFile)


@pytest.mark.feature("F30")
def test_spare_files_are_used_for_new_segments(tmp_path: Path) -> None:
    store = open_one(OsDisk(), tmp_path)
    spare = tmp_path / "dledger-n0" / "spare"
    store.append(1, Magic.NORMAL, bodies(3))
    assert store.spare_wanted
    store.prepare_spare()
    assert not store.spare_wanted
    store.prepare_spare()
    (prepared,) = spare.iterdir()
    assert prepared.read_bytes() == bytes(1024)
    number = prepared.stat().st_ino
    store.append(1, Magic.NORMAL, bodies(27))
    assert (tmp_path / "dledger-n0" / "data" / file_name(1024)).stat().st_ino == number
    assert store.spare_wanted
    store.prepare_spare()
    store.close()
    again = open_one(OsDisk(), tmp_path)
    assert list(spare.iterdir()) == []
    assert again.last_index == 29
    again.close()


@pytest.mark.parametrize("kind", ["write", "sync", "create"])
def test_a_spare_that_cannot_be_written_is_done_without(tmp_path: Path, kind: str) -> None:
    disk = FailingDisk()
    store = open_one(disk, tmp_path)
    store.append(1, Magic.NORMAL, bodies(3))
    disk.fail(kind, number=errno.ENOSPC)
    with pytest.raises(DiskFailed):
        store.prepare_spare()
    assert list((tmp_path / "dledger-n0" / "spare").iterdir()) == []
    assert store.spare_wanted
    assert store.append(1, Magic.NORMAL, bodies(27))[:2] == (3, 29)
    store.close()


def test_a_small_log_takes_the_room_of_what_was_written_to_it(tmp_path: Path) -> None:
    """Its files have full length all the same: Java demands that."""
    config = StoreConfig()
    store = open_store(OsDisk(), str(tmp_path), config, "g", "n0")
    store.append(1, Magic.NORMAL, [b"key = value"] * 500)
    store.begin_sync(HardState(1, None)).run()
    assert not store.spare_wanted
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_blocks * 512 for path in files) < 256 * 1024
    lengths = {path.parent.name: path.stat().st_size for path in files if path.name.isdigit()}
    assert lengths == {"data": config.segment_bytes, "index": config.index_segment_bytes}
    store.close()


def test_a_log_gets_a_spare_file_once_it_fills_an_eighth_of_a_segment(tmp_path: Path) -> None:
    store = open_one(OsDisk(), tmp_path)
    assert not store.spare_wanted
    store.append(1, Magic.NORMAL, [bytes(40)])
    assert not store.spare_wanted
    store.append(1, Magic.NORMAL, [bytes(40)])
    assert (store.end_pos, store.spare_wanted) == (2 * 88, True)
    store.close()


def test_a_truncation_makes_the_new_end_durable_before_it_zeroes_the_rest(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = open_one(disk, tmp_path)
    store.append(1, Magic.NORMAL, bodies(20))
    disk.events.clear()
    store.truncate_after(2)
    name = f"data/{file_name(0)}"
    changes = [
        event for event in disk.events if event[0] != "read" and not event[1].startswith("index")
    ]
    removals = changes[: -len(["write", "sync", "write", "sync"])]
    assert [kind for kind, _ in removals] == ["remove", "sync_folder"] * (len(removals) // 2)
    assert removals[0][1] > removals[2][1] > name
    assert changes[-4:] == [("write", name), ("sync", name)] * 2
    store.close()


def test_what_a_killed_process_wrote_is_synced_before_it_is_believed(tmp_path: Path) -> None:
    store = open_one(OsDisk(), tmp_path)
    store.append(1, Magic.NORMAL, bodies(20))
    store._files.close()
    disk = FailingDisk()
    store = open_one(disk, tmp_path)
    record = [kind for kind, path in disk.events if path == "hard-state"]
    assert record[:2] == ["sync", "read"]
    synced = {path for kind, path in disk.events if kind == "sync"}
    there = {f"data/{path.name}" for path in (tmp_path / "dledger-n0" / "data").iterdir()}
    assert len(there) > 1
    assert there <= synced
    assert {"data", "index"} <= {path for kind, path in disk.events if kind == "sync_folder"}
    store.close()
