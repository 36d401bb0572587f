"""Looking at a folder from outside: what is found, what is reported, and nothing is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dledger.core.hard_state import HardState
from dledger.entry import HEADER_BYTES, Magic
from dledger.errors import ConfigInvalid
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.scan import EntryPlace, ProblemKind, scan_folder
from dledger.store.segment import file_name
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig

CONFIG = StoreConfig(segment_bytes=4096, index_segment_bytes=320, max_body_bytes=2000)


def open_one(base: Path) -> SegmentStore:
    return open_store(OsDisk(), str(base), CONFIG, "g", "n0")


def build(base: Path, count: int = 80, committed: int = 70) -> None:
    store = open_one(base)
    store.append(3, Magic.NORMAL, [b"entry-%d " % i * 12 for i in range(count)])
    store.begin_sync(HardState(4, "n2")).run()
    store.note_committed(committed)
    store.close()


def contents(base: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in base.rglob("*") if path.is_file()}


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(bytes(content))


def data(base: Path, start: int) -> Path:
    return base / "dledger-n0" / "data" / file_name(start)


def test_a_scan_reads_the_files_and_the_record_and_writes_nothing(tmp_path: Path) -> None:
    build(tmp_path)
    before = contents(tmp_path)
    scan = scan_folder(str(tmp_path))
    places = list(scan.entries())
    assert [place.header.index for place in places] == list(range(80))
    for place in places:
        content = Path(place.path).read_bytes()[place.offset :][: place.header.size]
        assert content[HEADER_BYTES:] == b"entry-%d " % place.header.index * 12
    assert [segment.start for segment in scan.segments] == [0, 4096, 8192, 12288]
    assert [segment.size for segment in scan.segments] == [4096] * 4
    assert scan.segment_bytes == 4096
    assert scan.committed == 70
    assert scan.record is not None
    assert scan.record.hard_state == HardState(4, "n2", 70)
    assert (scan.record.group, scan.record.node_id, scan.java) == ("g", "n0", False)
    assert scan.verify() == []
    assert contents(tmp_path) == before


def test_the_base_folder_and_the_nodes_folder_are_the_same_to_a_scan(tmp_path: Path) -> None:
    build(tmp_path)
    from_base = list(scan_folder(str(tmp_path)).entries())
    assert list(scan_folder(str(tmp_path / "dledger-n0")).entries()) == from_base


def test_a_folder_of_several_nodes_or_of_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="no log"):
        scan_folder(str(tmp_path))
    with pytest.raises(ConfigInvalid, match="no log"):
        scan_folder(str(tmp_path / "absent"))
    build(tmp_path)
    shutil.copytree(tmp_path / "dledger-n0", tmp_path / "dledger-n1")
    with pytest.raises(ConfigInvalid, match="dledger-n0, dledger-n1"):
        scan_folder(str(tmp_path))


def test_a_log_is_scanned_while_its_node_runs(tmp_path: Path) -> None:
    store = open_one(tmp_path)
    store.append(1, Magic.NORMAL, [b"x" * 500] * 20)
    assert len(list(scan_folder(str(tmp_path)).entries())) == 20
    store.truncate_after(4)
    store.append(2, Magic.NORMAL, [b"y"])
    assert [place.header.term for place in scan_folder(str(tmp_path)).entries()] == [1] * 5 + [2]
    store.close()


def test_an_empty_log_is_scanned(tmp_path: Path) -> None:
    open_one(tmp_path).close()
    scan = scan_folder(str(tmp_path))
    assert list(scan.entries()) == []
    assert scan.verify() == []
    assert scan.segments == []


def test_a_broken_body_ends_the_scan_and_is_reported_with_its_place(tmp_path: Path) -> None:
    build(tmp_path)
    places = list(scan_folder(str(tmp_path)).entries())
    broken: EntryPlace = places[50]
    flip(Path(broken.path), broken.offset + HEADER_BYTES + 3)
    scan = scan_folder(str(tmp_path))
    assert len(list(scan.entries())) == 50
    kinds = {problem.kind: problem for problem in scan.problems}
    assert kinds.keys() == {ProblemKind.BROKEN_RECORD, ProblemKind.COMMITTED_MISSING}
    found = kinds[ProblemKind.BROKEN_RECORD]
    assert (found.path, found.offset, found.entry) == (broken.path, broken.offset, 50)
    assert "CRC" in found.text
    assert list(scan.entries()) == places[:50]
    assert len(scan.problems) == 2


def test_a_scan_without_sums_does_not_look_at_bodies(tmp_path: Path) -> None:
    build(tmp_path)
    places = list(scan_folder(str(tmp_path)).entries())
    flip(Path(places[50].path), places[50].offset + HEADER_BYTES + 3)
    scan = scan_folder(str(tmp_path))
    assert list(scan.entries(check_sums=False)) == places
    assert scan.problems == []


def test_missing_and_short_files_are_reported(tmp_path: Path) -> None:
    build(tmp_path)
    with data(tmp_path, 0).open("r+b") as file:
        file.truncate(2000)
    data(tmp_path, 4096).unlink()
    (tmp_path / "dledger-n0" / "data" / "notes.txt").write_text("")
    scan = scan_folder(str(tmp_path))
    assert {problem.kind for problem in scan.problems} == {
        ProblemKind.FILE_LENGTH,
        ProblemKind.FILE_MISSING,
        ProblemKind.FOREIGN_FILE,
    }
    assert all(place.path == str(data(tmp_path, 0)) for place in scan.entries())


def test_an_unreadable_hard_state_is_reported_and_the_log_is_still_checked(
    tmp_path: Path,
) -> None:
    build(tmp_path)
    (tmp_path / "dledger-n0" / "hard-state").write_bytes(b"?" * 5000)
    flip(data(tmp_path, 4096), 100)
    scan = scan_folder(str(tmp_path))
    assert scan.record is None
    assert not scan.java
    assert scan.segment_bytes == 4096
    kinds = [problem.kind for problem in scan.verify()]
    assert kinds == [ProblemKind.HARD_STATE, ProblemKind.BROKEN_RECORD]


def test_an_index_that_disagrees_with_the_data_is_reported(tmp_path: Path) -> None:
    build(tmp_path)
    flip(tmp_path / "dledger-n0" / "index" / file_name(320), 32 * 3 + 10)
    (problem,) = scan_folder(str(tmp_path)).verify()
    assert problem.kind is ProblemKind.INDEX_UNIT
    assert (problem.entry, problem.offset) == (13, 96)
    assert problem.path.endswith(file_name(320))


def test_a_lost_index_is_reported(tmp_path: Path) -> None:
    build(tmp_path)
    for path in (tmp_path / "dledger-n0" / "index").iterdir():
        path.unlink()
    assert [problem.kind for problem in scan_folder(str(tmp_path)).verify()] == [
        ProblemKind.INDEX_UNIT
    ]
