"""Recovery and readers find every entry while the index files lack the newest units."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from dledger.core.hard_state import HardState
from dledger.entry import HEADER_BYTES, Entry, Magic
from dledger.store.disk import Disk, OsDisk
from dledger.store.index_file import MAX_UNWRITTEN_BYTES, LogIndex
from dledger.store.index_unit import UNIT, UNIT_BYTES, IndexUnit
from dledger.store.open_store import open_store
from dledger.store.scan import ProblemKind, scan_folder
from dledger.store.segment import SegmentFiles, file_name
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, VirtualDisk
from tests.dledger.store.stored_entries import read_all
from tests.dledger.store.test_store_failures import FailingDisk

CONFIG = StoreConfig(
    segment_bytes=1 << 20,
    index_segment_bytes=1 << 17,
    max_body_bytes=2000,
    spare_segments=0,
    checkpoint_bytes=4096,
)
BODY = bytes(range(100))
ENTRY_BYTES = HEADER_BYTES + len(BODY)
# The entries that a start checks at most: a checkpoint follows the one before, and its sync.
MOST_CHECKED = 2 * CONFIG.checkpoint_bytes // ENTRY_BYTES + 2


def opened(disk: Disk, base: str = "/base") -> SegmentStore:
    return open_store(disk, base, CONFIG, "g", "n0")


def append(store: SegmentStore, count: int = 1) -> None:
    """Entries in appends of their own, each synced."""
    for _ in range(count):
        store.append(1, Magic.NORMAL, [BODY])
        store.begin_sync(HardState(1, "n0") if store.last_index == 0 else None).run()


def record_commit(store: SegmentStore, index: int, *, in_next_sync: bool = True) -> None:
    store.note_committed(index)
    assert store.save_committed(in_next_sync=in_next_sync)


def written_units(base: Path) -> int:
    """How many units from the first one on are in the index files."""
    path = base / "dledger-n0" / "index" / file_name(0)
    content = path.read_bytes() if path.exists() else b""
    count = 0
    for _, _, size, index, _ in UNIT.iter_unpack(content):
        if not size or index != count:
            break
        count += 1
    return count


def killed(base: Path, committed: int = 4, later: int = 5) -> list[Entry]:
    """The entries of a killed process; their index ends with the one recorded as committed."""
    store = opened(OsDisk(), str(base))
    append(store, committed + 1)
    record_commit(store, committed, in_next_sync=False)
    append(store, later)
    entries = read_all(store)
    store._files.close()
    assert written_units(base) == committed + 1
    return entries


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("committed", [-1, 2, 60])
def test_a_power_cut_takes_no_entry_whose_unit_was_not_written(keep: float, committed: int) -> None:
    disk = VirtualDisk(Chance(7, "disk"))
    store = opened(disk)
    append(store, committed + 1)
    if committed >= 0:
        record_commit(store, committed)
    append(store, 30)
    entries = read_all(store)
    disk.cut_power(CrashStyle(keep=keep, torn=0.5, names_in_order=False))
    store = opened(disk)
    assert read_all(store) == entries
    append(store, 3)
    store.close()
    assert scan_folder("/base", disk).verify() == []


def test_what_a_start_checks_is_bounded_though_the_index_is_late() -> None:
    disk = VirtualDisk(Chance(7, "disk"))
    store = opened(disk)
    for _ in range(20):
        append(store, 10)
        record_commit(store, store.last_index)
    append(store)  # makes the record durable
    entries = read_all(store)
    disk.cut_power(CrashStyle(keep=0.0, torn=0.0, names_in_order=True))
    store = opened(disk)
    assert store.recovered.entries_checked <= MOST_CHECKED
    assert read_all(store) == entries
    store.close()


def test_an_index_without_room_is_written_once_there_is_room(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = opened(disk, str(tmp_path))
    append(store, 3)
    store.note_committed(2)
    disk.fail("write", number=errno.ENOSPC)
    store.save_committed(in_next_sync=False)
    assert disk.kind == ""
    assert written_units(tmp_path) == 1  # with the record of the first term
    append(store, 2)
    assert store.synced_index == 4
    entries = read_all(store)
    record_commit(store, 4, in_next_sync=False)
    assert written_units(tmp_path) == 5
    store.close()
    store = opened(OsDisk(), str(tmp_path))
    assert read_all(store) == entries
    store.close()
    assert scan_folder(str(tmp_path), OsDisk()).verify() == []


def test_a_killed_process_leaves_an_index_that_the_start_completes(tmp_path: Path) -> None:
    entries = killed(tmp_path)
    store = opened(OsDisk(), str(tmp_path))
    assert written_units(tmp_path) == len(entries)
    assert read_all(store) == entries
    assert [store.header_at(entry.index).pos for entry in entries] == [e.pos for e in entries]
    store.close()


def test_no_more_units_are_in_memory_than_the_limit(tmp_path: Path) -> None:
    store = opened(OsDisk(), str(tmp_path))
    limit = MAX_UNWRITTEN_BYTES // UNIT_BYTES
    for _ in range(3):
        store.append(1, Magic.NORMAL, [b""] * limit)
    assert written_units(tmp_path) == 2 * limit
    store.append(1, Magic.NORMAL, [b""])
    assert written_units(tmp_path) == 3 * limit
    store.close()
    assert written_units(tmp_path) == 3 * limit + 1


def test_units_that_are_not_written_yet_are_no_problem_of_the_folder(tmp_path: Path) -> None:
    entries = killed(tmp_path)
    assert [place.header.index for place in scan_folder(str(tmp_path)).entries()] == [
        entry.index for entry in entries
    ]
    assert scan_folder(str(tmp_path)).verify() == []


@pytest.mark.parametrize("index", [4, 5])
def test_a_wrong_unit_is_a_problem_wherever_it_is(tmp_path: Path, index: int) -> None:
    killed(tmp_path)
    with (tmp_path / "dledger-n0" / "index" / file_name(0)).open("r+b") as file:
        file.seek(index * UNIT_BYTES)
        file.write(UNIT.pack(1, 1, 50, index, 1))
    [problem] = scan_folder(str(tmp_path)).verify()
    assert (problem.kind, problem.entry) == (ProblemKind.INDEX_UNIT, index)


def test_a_unit_that_the_recorded_commit_index_covers_may_not_be_missing(tmp_path: Path) -> None:
    killed(tmp_path)
    with (tmp_path / "dledger-n0" / "index" / file_name(0)).open("r+b") as file:
        file.seek(4 * UNIT_BYTES)
        file.write(bytes(UNIT_BYTES))
    [problem] = scan_folder(str(tmp_path)).verify()
    assert (problem.kind, problem.entry) == (ProblemKind.INDEX_UNIT, 4)


def test_units_of_entries_that_were_dropped_are_not_written(tmp_path: Path) -> None:
    """As long as the disk has no room they are in memory; retention drops their entries."""
    index = LogIndex(SegmentFiles(OsDisk(), str(tmp_path), 10 * UNIT_BYTES), 0)
    index.add(b"".join(UNIT.pack(1, entry * 50, 50, entry, 1) for entry in range(15)))
    assert index.forget_before(12) == []
    index.write()
    assert [path.name for path in tmp_path.iterdir()] == [file_name(10 * UNIT_BYTES)]
    assert index.unit(11) is None
    assert index.unit(12) == IndexUnit(1, 600, 50, 12, 1)
    assert index.unit(14) == IndexUnit(1, 700, 50, 14, 1)
    index.files.close()


@pytest.mark.parametrize("keep", [2, 4, 7])
def test_a_cut_drops_units_in_memory_and_in_the_files(tmp_path: Path, keep: int) -> None:
    store = opened(OsDisk(), str(tmp_path))
    append(store, 5)
    store.begin_sync(HardState(2)).run()  # a record: five units are written
    append(store, 5)
    before = read_all(store)
    store.truncate_after(keep)
    assert written_units(tmp_path) == min(5, keep + 1)
    for body in (b"another", b"length"):
        store.append(3, Magic.NORMAL, [body])
    found = read_all(store)
    assert found[: keep + 1] == before[: keep + 1]
    assert [entry.body for entry in found[keep + 1 :]] == [b"another", b"length"]
    store.close()
    assert scan_folder(str(tmp_path)).verify() == []
