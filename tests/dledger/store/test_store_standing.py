"""The mark of a folder that may have lost promises."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.membership.configuration import Configuration
from dledger.entry import Magic
from dledger.errors import (
    BirthUnreadable,
    ConfigInvalid,
    DataFolderLocked,
    DiskFailed,
    HardStateLost,
    LogCorrupt,
)
from dledger.store.birth_file import BirthFile
from dledger.store.birth_record import BirthRecord
from dledger.store.disk import OsDisk
from dledger.store.generation import Generation
from dledger.store.generation_file import GenerationFile
from dledger.store.hard_state_file import FILE_NAME as HARD_STATE
from dledger.store.open_store import open_store
from dledger.store.repair import repair_folder
from dledger.store.segment_store import SegmentStore
from dledger.store.set_aside import set_aside
from dledger.store.standing_file import FILE_NAME, StandingFile
from dledger.store.store_config import StoreConfig
from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, PowerCut, VirtualDisk

CONFIG = StoreConfig(segment_bytes=4096, index_segment_bytes=320, max_body_bytes=500)
FOLDER = "/base/dledger-n0"
GOLDEN = Path(__file__).parent.parent / "data" / "golden"
STYLES = [CrashStyle(keep, 0.5, in_order) for keep in (0.0, 0.5, 1.0) for in_order in (True, False)]


def opened(disk: VirtualDisk) -> SegmentStore:
    return open_store(disk, "/base", CONFIG, "g", "n0")


def real(folder: Path) -> SegmentStore:
    return open_store(OsDisk(), str(folder), CONFIG, "g", "n0")


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("steps", range(14))
def test_no_power_cut_leaves_an_emptied_folder_without_its_mark(
    steps: int, style: CrashStyle
) -> None:
    disk = VirtualDisk(Chance(steps, "disk"))
    disk.steps_left = steps
    try:
        opened(disk)
    except PowerCut:
        pass  # the rest of the test is about what is left
    else:
        assert steps > 5, "the power never went"
    disk.cut_power(style)
    assert opened(disk).standing is Standing.FRESH


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("standing", [Standing.PROVEN, Standing.LOST])
def test_a_standing_is_durable_when_it_is_set(standing: Standing, style: CrashStyle) -> None:
    disk = VirtualDisk(Chance(1, "disk"))
    store = opened(disk)
    store.set_standing(standing)
    assert store.standing is standing
    disk.cut_power(style)
    assert opened(disk).standing is standing


def test_a_folder_that_was_believed_once_can_be_doubted_again() -> None:
    disk = VirtualDisk(Chance(1, "disk"))
    store = opened(disk)
    store.set_standing(Standing.PROVEN)
    store.set_standing(Standing.LOST)
    store.close()
    assert opened(disk).standing is Standing.LOST


def test_a_mark_that_says_something_else_is_taken_for_the_worst() -> None:
    disk = VirtualDisk(Chance(1, "disk"))
    opened(disk).close()
    disk.open(f"{FOLDER}/{FILE_NAME}").write(b"?", 0)
    assert opened(disk).standing is Standing.LOST


def test_a_folder_of_java_is_not_taken_for_an_emptied_one(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "tiny" / "n0", tmp_path, dirs_exist_ok=True)
    store = real(tmp_path)
    assert store.standing is Standing.PROVEN
    store.close()


def log_of(folder: Path) -> Path:
    """A proven folder with ten entries, eight of them recorded as committed."""
    store = real(folder)
    store.set_standing(Standing.PROVEN)
    store.append(1, Magic.NORMAL, [b"entry %d" % number * 9 for number in range(10)])
    store.begin_sync(HardState(1, "n0", 7)).run()
    store.close()
    return folder / "dledger-n0"


def test_what_is_set_aside_is_all_there_and_the_folder_is_empty_and_marked(tmp_path: Path) -> None:
    folder = log_of(tmp_path)
    record = (folder / HARD_STATE).read_bytes()
    aside = Path(set_aside(str(tmp_path)))
    assert (aside / HARD_STATE).read_bytes() == record
    assert sorted(path.name for path in aside.iterdir()) == ["data", HARD_STATE, "index"]
    store = real(tmp_path)
    assert (store.last_index, store.hard_state) == (-1, HardState())
    assert store.standing is Standing.LOST
    store.close()
    assert Path(set_aside(str(folder))).name == "aside-2"


class FailingRenames(OsDisk):
    """A disk that fails after so many renames."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def rename(self, source: str, target: str) -> None:
        if "/aside-" in target:
            if not self.left:
                raise OSError(errno.EIO, "the disk fails")
            self.left -= 1
        super().rename(source, target)


@pytest.mark.parametrize("moved", range(4))
def test_a_second_call_sets_aside_what_an_interrupted_one_left(tmp_path: Path, moved: int) -> None:
    folder = log_of(tmp_path)
    (folder / "snapshots").mkdir()
    parts = {HARD_STATE, "data", "index", "snapshots"}
    with pytest.raises(DiskFailed):
        set_aside(str(tmp_path), FailingRenames(moved))
    set_aside(str(tmp_path))
    assert not parts & real_names(folder)
    assert parts == {part.name for part in folder.glob("aside-*/*")}


def test_a_lost_committed_tail_or_record_has_a_way_forward(tmp_path: Path) -> None:
    folder = log_of(tmp_path)
    (segment,) = (folder / "data").iterdir()
    content = segment.read_bytes()
    segment.write_bytes(content[:300].ljust(len(content), b"\0"))
    with pytest.raises(LogCorrupt, match="dledger rejoin"):
        real(tmp_path)
    (folder / HARD_STATE).unlink()
    with pytest.raises(HardStateLost, match="dledger rejoin"):
        real(tmp_path)
    set_aside(str(folder))
    store = real(tmp_path)
    assert store.standing is Standing.LOST
    store.close()


@pytest.mark.parametrize(("name", "read"), [("generation", GenerationFile), ("birth", BirthFile)])
def test_a_mark_of_the_group_that_cannot_be_read_is_set_aside_too(
    tmp_path: Path, name: str, read: Callable[[OsDisk, str], object]
) -> None:
    folder = log_of(tmp_path)
    GenerationFile(OsDisk(), str(folder)).set(Generation(2))
    BirthFile(OsDisk(), str(folder)).write(BirthRecord("g", Configuration()))
    (folder / name).write_bytes(b"\x80 broken")
    with pytest.raises((LogCorrupt, BirthUnreadable)):
        read(OsDisk(), str(folder))
    aside = set(real_names(Path(set_aside(str(folder)))))
    assert aside & {"generation", "birth"} == {name}
    assert real_names(folder) & {"generation", "birth"} == {"generation", "birth"} - {name}
    read(OsDisk(), str(folder))


def test_a_folder_in_use_or_without_a_node_is_not_set_aside(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="holds no node"):
        set_aside(str(tmp_path))
    store = real(tmp_path)
    with pytest.raises(DataFolderLocked):
        set_aside(str(tmp_path))
    store.close()
    assert real_names(tmp_path / "dledger-n0") >= {"data", HARD_STATE}


def real_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(("damaged", "standing"), [(3, Standing.PROVEN), (5, Standing.LOST)])
def test_a_repair_that_reaches_the_logs_end_leaves_the_member_in_doubt(
    damaged: int, standing: Standing, tmp_path: Path
) -> None:
    folder = log_of(tmp_path / "broken")
    shutil.copytree(folder, tmp_path / "whole" / "dledger-n0")
    (segment,) = (folder / "data").iterdir()
    content = segment.read_bytes()
    start = content.index(b"entry %d" % damaged)
    end = start + 10 if damaged == 3 else len(content)
    segment.write_bytes(content[:start] + b"\x01" * (end - start) + content[end:])
    assert repair_folder(str(folder), str(tmp_path / "whole"))
    assert StandingFile(OsDisk(), str(folder)).standing is standing
