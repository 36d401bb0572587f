"""A log that loses its beginning while somebody reads it from outside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from dledger.commands import offline_commands
from dledger.core.hard_state import HardState
from dledger.entry import Magic
from dledger.errors import BeginningDropped, RepairFailed
from dledger.store import scan as scan_module
from dledger.store.disk import OsDisk, OsDiskFile
from dledger.store.open_store import open_store
from dledger.store.repair import repair_folder
from dledger.store.scan import HeaderRun, ProblemKind, scan_folder
from dledger.store.segment import file_name
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig

CONFIG = StoreConfig(
    segment_bytes=4096, index_segment_bytes=320, max_body_bytes=2000, spare_segments=0
)
A_SEGMENT = 27  # entries of 100 bytes


class Running:
    """A node's store that loses one more segment whenever it is told to."""

    def __init__(self, base: Path, count: int = 200) -> None:
        self.base = base
        self.store: SegmentStore = open_store(OsDisk(), str(base), CONFIG, "g", "n0")
        self.store.append(1, Magic.NORMAL, [b"x" * 100] * count)
        self.store.begin_sync(HardState(1, "n0")).run()
        self.store.note_committed(count - 1)
        self.store.save_committed()

    def record_drop(self) -> None:
        """Drop the first segment; its files are not removed yet."""
        self.store.discard_before(self.store.first_index + A_SEGMENT)
        self.store.begin_sync(None).run()

    def drop(self) -> None:
        self.record_drop()
        files = self.store.take_discarded()
        assert files is not None
        files.remove()

    def drop_two(self) -> None:
        self.drop()
        self.drop()


class WatchedDisk(OsDisk):
    """Calls back before it opens a file for reading, or after it lists names, once each."""

    def __init__(self) -> None:
        self.before_open: dict[str, Callable[[], None]] = {}
        self.after_list: dict[str, Callable[[], None]] = {}

    def open(self, path: str, *, writable: bool = True) -> OsDiskFile:
        self._call(self.before_open, path)
        return super().open(path, writable=writable)

    def list(self, path: str) -> list[str]:
        names = super().list(path)
        self._call(self.after_list, path)
        return names

    @staticmethod
    def _call(hooks: dict[str, Callable[[], None]], path: str) -> None:
        for end in list(hooks):
            if path.endswith(end):
                hooks.pop(end)()


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


def indexes(runs: list[HeaderRun]) -> list[int]:
    return [header[2] for run in runs for header in run.headers]


def test_a_scan_begins_where_the_log_begins_by_the_time_it_opens_a_file(running: Running) -> None:
    disk = WatchedDisk()
    scan = scan_folder(str(running.base), disk)
    running.drop()
    disk.before_open["data/" + file_name(4096)] = running.drop
    assert indexes(list(scan.runs())) == list(range(2 * A_SEGMENT, 200))
    assert scan.problems == []
    running.store.close()


def test_a_scan_that_retention_overtakes_says_where_the_log_begins(running: Running) -> None:
    scan = scan_folder(str(running.base))
    runs = scan.runs()
    assert next(runs).headers[0][2] == 0
    running.drop()
    running.drop()
    with pytest.raises(BeginningDropped, match="begins with entry 54 now: try again") as dropped:
        next(runs)
    assert dropped.value.first_index == 2 * A_SEGMENT
    assert dropped.value.retry_safe
    running.store.close()


def test_a_scan_goes_on_in_the_file_that_it_has_open(running: Running) -> None:
    scan = scan_folder(str(running.base))
    runs = scan.runs()
    first = next(runs)
    running.drop()
    assert indexes([first, *runs]) == list(range(200))
    running.store.close()


def test_files_that_go_while_their_names_are_listed_are_no_gap(running: Running) -> None:
    """The second file goes before the first: a removal may take them in any order."""
    disk = WatchedDisk()

    def drop_the_second_first() -> None:
        running.record_drop()
        running.record_drop()
        files = running.store.take_discarded()
        assert files is not None
        Path(files.paths[1]).unlink()

    disk.after_list["/data"] = drop_the_second_first
    scan = scan_folder(str(running.base), disk)
    assert scan.verify() == []
    assert scan.segments[0].start == 2 * 4096
    running.store.close()


def test_a_file_that_is_missing_though_nothing_was_dropped_is_still_an_error(
    running: Running,
) -> None:
    scan = scan_folder(str(running.base))
    (running.base / "dledger-n0" / "data" / file_name(4096)).unlink()
    with pytest.raises(FileNotFoundError):
        list(scan.runs())
    with pytest.raises(FileNotFoundError):
        scan.verify()
    problems = scan_folder(str(running.base)).verify()
    assert ProblemKind.FILE_MISSING in [problem.kind for problem in problems]
    running.store.close()


def test_verifying_a_log_that_loses_its_beginning_finds_nothing_wrong(running: Running) -> None:
    disk = WatchedDisk()
    scan = scan_folder(str(running.base), disk)
    disk.before_open["data/" + file_name(4096)] = running.drop
    disk.before_open["data/" + file_name(2 * 4096)] = running.drop_two
    disk.before_open["index/" + file_name(320 * 14)] = running.drop
    assert scan.verify() == []
    assert running.store.first_index == 4 * A_SEGMENT
    running.store.close()


def test_index_files_that_go_while_their_names_are_listed_are_no_gap(running: Running) -> None:
    disk = WatchedDisk()
    scan = scan_folder(str(running.base), disk)

    def drop_the_second_first() -> None:
        running.record_drop()
        assert running.store.take_discarded() is not None
        (running.base / "dledger-n0" / "index" / file_name(320)).unlink()

    disk.after_list["/index"] = drop_the_second_first
    assert scan.verify() == []
    running.store.close()


def test_damage_is_found_while_the_log_loses_its_beginning(running: Running) -> None:
    path = running.base / "dledger-n0" / "data" / file_name(5 * 4096)
    content = bytearray(path.read_bytes())
    content[100] ^= 0xFF
    path.write_bytes(content)
    disk = WatchedDisk()
    scan = scan_folder(str(running.base), disk)
    disk.before_open["data/" + file_name(4096)] = running.drop_two
    kinds = [problem.kind for problem in scan.verify()]
    assert kinds == [ProblemKind.BROKEN_RECORD, ProblemKind.COMMITTED_MISSING]
    running.store.close()


def test_a_log_that_is_dropped_faster_than_it_is_read_is_given_up(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "_MAX_PASSES", 2)
    scan = scan_folder(str(running.base))

    def overtaken() -> None:
        running.drop()
        raise BeginningDropped(scan.folder, running.store.first_index)

    monkeypatch.setattr(scan, "_find_problems", overtaken)
    with pytest.raises(BeginningDropped):
        scan.verify()
    assert running.store.first_index == 2 * A_SEGMENT
    running.store.close()


def test_a_file_that_is_being_created_reads_as_empty(running: Running) -> None:
    path = running.base / "dledger-n0" / "data" / file_name(8 * 4096)
    for length in (0, 1, 100, 4095):
        path.write_bytes(bytes(length))
        scan = scan_folder(str(running.base))
        assert scan.verify() == []
        assert len(list(scan.entries())) == 200
    running.store.close()


# --- the commands -----------------------------------------------------------------------------


def test_dump_says_that_the_log_lost_the_entries_it_was_to_print(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = offline_commands._Bodies.digest

    def digest_late(bodies: offline_commands._Bodies, place: scan_module.EntryPlace) -> str:
        if place.header.index == 0:
            running.drop()
        return digest(bodies, place)

    monkeypatch.setattr(offline_commands._Bodies, "digest", digest_late)
    result = CliRunner().invoke(offline_commands.dump, [str(running.base)])
    assert isinstance(result.exception, BeginningDropped)
    running.store.close()


def test_verify_compares_two_logs_of_which_one_loses_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [Running(tmp_path / "a"), Running(tmp_path / "b")]
    compare = offline_commands._first_difference

    def compare_late(reports: list[offline_commands._Report]) -> int | None:
        if nodes[1].store.first_index == 0:
            nodes[1].drop()
        return compare(reports)

    monkeypatch.setattr(offline_commands, "_first_difference", compare_late)
    result = CliRunner().invoke(
        offline_commands.verify, ["--json", str(tmp_path / "a"), str(tmp_path / "b")]
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["first_difference"] is None
    assert [report["first_index"] for report in found["folders"]] == [0, A_SEGMENT]
    for node in nodes:
        node.store.close()


def test_a_repair_from_a_log_that_loses_files_meanwhile_says_try_again(
    running: Running, tmp_path: Path
) -> None:
    member, broken = tmp_path / "dledger-n0", tmp_path / "broken" / "dledger-n0"
    shutil.copytree(member, broken)
    first_file = broken / "data" / file_name(0)
    with first_file.open("r+b") as file:
        file.seek(1000)
        file.write(b"rot")
    rotten = first_file.read_bytes()
    disk = WatchedDisk()
    path = str(member / "data" / file_name(0))
    # Opened once to see what is there, then to read from it.
    disk.before_open[path] = lambda: disk.before_open.update({path: running.drop})
    with pytest.raises(BeginningDropped, match="try again"):
        repair_folder(str(broken), str(member), disk)
    assert first_file.read_bytes() == rotten
    running.store.close()


def test_a_log_that_begins_behind_the_damage_is_of_no_help_to_a_repair(
    running: Running, tmp_path: Path
) -> None:
    member, broken = tmp_path / "dledger-n0", tmp_path / "broken" / "dledger-n0"
    shutil.copytree(member, broken)
    with (broken / "data" / file_name(0)).open("r+b") as file:
        file.seek(1000)
        file.write(b"rot")
    running.drop()
    with pytest.raises(RepairFailed, match="the other log does not hold entry 6 either"):
        repair_folder(str(broken), str(member))
    running.store.close()
