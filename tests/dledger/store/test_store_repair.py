"""A broken log is mended from another member's."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dledger.commands.group_commands import commands
from dledger.core.hard_state import HardState
from dledger.entry import Magic
from dledger.errors import ConfigInvalid, DataFolderLocked, LogCorrupt, RepairFailed
from dledger.store.disk import OsDisk, OsDiskFile
from dledger.store.open_store import open_store
from dledger.store.repair import repair_folder
from dledger.store.scan import scan_folder
from dledger.store.store_config import StoreConfig
from tests.examples import examples

SEGMENT_BYTES = 4096
CONFIG = StoreConfig(
    segment_bytes=SEGMENT_BYTES,
    index_segment_bytes=1024,
    max_body_bytes=1000,
    spare_segments=0,
)
BODIES = [b"entry-%d" % number * (1 + number % 17) for number in range(120)]


def write(
    base: Path, node_id: str, bodies: Sequence[bytes] = BODIES, *, committed: int, group: str = "g"
) -> Path:
    """The log of one member; all members of these tests have equal ones."""
    store = open_store(OsDisk(), str(base), CONFIG, group, node_id)
    try:
        for at, body in enumerate(bodies):
            store.append(1 + at // 50, Magic.NORMAL, [body])
        store.begin_sync(HardState(3, None, committed)).run()
        store.note_committed(committed)
        store.save_committed()
    finally:
        store.close()
    return base / f"dledger-{node_id}"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The log that is going to be damaged."""
    return write(tmp_path, "n0", committed=100)


@pytest.fixture
def intact(tmp_path: Path) -> Path:
    """The same log, of another member."""
    return write(tmp_path, "n1", committed=100)


class ReadOnlyDisk(OsDisk):
    """A disk on which the files below one folder can only be read."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def open(self, path: str, *, writable: bool = True) -> OsDiskFile:
        if writable and path.startswith(self._folder):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return super().open(path, writable=writable)


def data_files(folder: Path) -> list[Path]:
    """The data files, in order."""
    return sorted((folder / "data").iterdir())


def contents(folder: Path) -> list[bytes]:
    """What is in data and index."""
    return [
        path.read_bytes() for path in (*data_files(folder), *sorted((folder / "index").iterdir()))
    ]


def entries(folder: Path) -> list[bytes]:
    """The bytes of every entry; what is behind the blank that closes a file is none."""
    return [
        Path(place.path).read_bytes()[place.offset : place.offset + place.header.size]
        for place in scan_folder(str(folder)).entries()
    ]


def damage(path: Path, offset: int, data: bytes) -> None:
    """Overwrite some bytes of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_log_without_damage_is_left_as_it_is(broken: Path, intact: Path) -> None:
    before = contents(broken)
    assert repair_folder(str(broken), str(intact)) == []
    assert contents(broken) == before


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_flipped_byte_is_mended_and_nothing_else_is_written(
    broken: Path, intact: Path, number: int
) -> None:
    wanted = contents(broken)
    damage(
        data_files(broken)[number], 1234, bytes([data_files(broken)[number].read_bytes()[1234] ^ 4])
    )
    [stretch] = repair_folder(str(broken), str(intact))
    assert stretch.path == str(data_files(broken)[number])
    assert stretch.offset <= 1234 < stretch.offset + stretch.size
    assert stretch.first_index == stretch.last_index
    assert contents(broken) == wanted
    assert scan_folder(str(broken)).verify() == []


def test_the_node_starts_again_after_the_repair(broken: Path, intact: Path, tmp_path: Path) -> None:
    damage(data_files(broken)[-2], 0, bytes(SEGMENT_BYTES))
    damage(data_files(broken)[-1], 0, bytes(64))
    with pytest.raises(LogCorrupt, match="dledger repair"):
        open_store(OsDisk(), str(tmp_path), CONFIG, "g", "n0")
    assert repair_folder(str(broken), str(intact))
    store = open_store(OsDisk(), str(tmp_path), CONFIG, "g", "n0")
    try:
        assert store.last_index == len(BODIES) - 1
    finally:
        store.close()


@pytest.mark.parametrize("number", [1, 2])
def test_a_file_that_is_missing_in_between_is_made_anew(
    broken: Path, intact: Path, number: int
) -> None:
    wanted = contents(broken)
    data_files(broken)[number].unlink()
    assert repair_folder(str(broken), str(intact))
    assert contents(broken) == wanted


def test_files_that_are_missing_at_the_end_are_made_anew_and_the_doubt_is_told(
    broken: Path, intact: Path
) -> None:
    wanted = contents(broken)
    for path in data_files(broken)[2:]:
        path.unlink()
    [stretch] = repair_folder(str(broken), str(intact))
    assert not stretch.certain
    assert contents(broken) == wanted


def test_damage_behind_the_last_recorded_commit_is_mended_if_intact_entries_follow_it(
    broken: Path, intact: Path
) -> None:
    wanted = contents(broken)
    place = next(p for p in scan_folder(str(broken)).entries() if p.header.index == 110)
    damage(Path(place.path), place.offset + 50, b"??")
    [stretch] = repair_folder(str(broken), str(intact))
    assert stretch[3:] == (110, 110, True)
    assert contents(broken) == wanted


def test_a_torn_end_is_left_to_recovery(broken: Path, intact: Path) -> None:
    place = next(p for p in scan_folder(str(broken)).entries() if p.header.index == len(BODIES) - 1)
    damage(Path(place.path), place.offset + 50, bytes(20))
    before = contents(broken)
    assert repair_folder(str(broken), str(intact)) == []
    assert contents(broken) == before


def test_entries_of_another_history_are_never_taken(broken: Path, tmp_path: Path) -> None:
    others = [*BODIES[:60], b"another's entry", *BODIES[61:]]
    other = write(tmp_path / "other", "n2", others, committed=59)
    place = next(p for p in scan_folder(str(broken)).entries() if p.header.index == 60)
    damage(Path(place.path), place.offset + 50, b"??")
    before = contents(broken)
    with pytest.raises(RepairFailed, match="lead to the intact entries"):
        repair_folder(str(broken), str(other))
    assert contents(broken) == before


def test_damage_that_both_have_is_told(broken: Path, intact: Path) -> None:
    for folder in (broken, intact):
        damage(data_files(folder)[1], 500, bytes(200))
    with pytest.raises(RepairFailed, match="does not hold entry"):
        repair_folder(str(broken), str(intact))


def test_a_wrong_index_is_written_anew(broken: Path, intact: Path) -> None:
    wanted = contents(broken)
    first = sorted((broken / "index").iterdir())[0]
    damage(first, 100, b"nonsense")
    assert scan_folder(str(broken)).verify() != []
    assert repair_folder(str(broken), str(intact)) == []
    assert contents(broken) == wanted


def test_a_running_node_is_not_repaired(broken: Path, intact: Path, tmp_path: Path) -> None:
    store = open_store(OsDisk(), str(tmp_path), CONFIG, "g", "n0")
    try:
        with pytest.raises(DataFolderLocked):
            repair_folder(str(broken), str(intact))
    finally:
        store.close()


def test_folders_of_different_groups_are_refused(broken: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", "n1", BODIES[:3], committed=2, group="h")
    with pytest.raises(ConfigInvalid, match="group h"):
        repair_folder(str(broken), str(other))
    with pytest.raises(ConfigInvalid, match="to be repaired"):
        repair_folder(str(broken), str(broken))


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    wounds=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, SEGMENT_BYTES - 1),
            st.binary(min_size=1, max_size=700),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_damage_to_committed_entries_is_undone(
    broken: Path, intact: Path, tmp_path: Path, wounds: list[tuple[int, int, bytes]]
) -> None:
    hurt = tmp_path / "hurt" / "dledger-n0"
    shutil.rmtree(hurt, ignore_errors=True)
    shutil.copytree(broken, hurt)
    for number, offset, data in wounds:
        path = data_files(hurt)[number]
        damage(path, offset, data[: SEGMENT_BYTES - offset])
    repair_folder(str(hurt), str(intact))
    assert scan_folder(str(hurt)).verify() == []
    assert entries(hurt) == entries(broken)


def test_the_command_says_what_it_replaced(broken: Path, intact: Path) -> None:
    arguments = ["repair", str(broken), "--from", str(intact)]
    assert "nothing was broken" in CliRunner().invoke(commands, arguments).output
    damage(data_files(broken)[1], 500, b"??")
    printed = CliRunner().invoke(commands, arguments)
    assert printed.exit_code == 0
    assert data_files(broken)[1].name in printed.output


def test_a_folder_that_can_only_be_read_is_verified_and_repaired_from(
    broken: Path, intact: Path
) -> None:
    whole = contents(broken)
    damage(data_files(broken)[0], 1000, b"\xff")
    disk = ReadOnlyDisk(intact)
    assert scan_folder(str(intact), disk).verify() == []
    assert len(repair_folder(str(broken), str(intact), disk)) == 1
    assert contents(broken) == whole
