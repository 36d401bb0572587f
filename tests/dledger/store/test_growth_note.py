"""The note outside of a data folder that a group has grown."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dledger.config import NodeConfig
from dledger.core.admission.standing import Told
from dledger.core.membership.change_errors import GrowthNotNoted
from dledger.snapshots.restoring import open_and_restore
from dledger.store.disk import OsDisk
from dledger.store.growth_note import GrowthNote, NotedMember
from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, VirtualDisk
from tests.dledger.node.test_node import Register


def noted(folder: Path, state: Path | None, **other: str) -> GrowthNote:
    fields = {"group": "g", "node_id": "n0", "data_dir": str(folder), **other}
    return GrowthNote(OsDisk(), NotedMember(**fields), None if state is None else str(state))


def test_either_place_alone_tells_that_the_group_has_grown(tmp_path: Path) -> None:
    data, state = tmp_path / "lib" / "log", tmp_path / "home" / "state"
    data.mkdir(parents=True)
    for lost in (None, data, data.parent, state):
        note = noted(data, state)
        assert note.write() == []
        if lost is not None:
            shutil.rmtree(lost)
        assert note.found() is not None
        data.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(state, ignore_errors=True)
    shutil.rmtree(data.parent)
    assert note.found() is None


@pytest.mark.parametrize(
    "other", [{"group": "h"}, {"node_id": "n1"}, {"data_dir": "/somewhere/else"}]
)
def test_the_note_is_about_one_member_in_one_folder(tmp_path: Path, other: dict[str, str]) -> None:
    noted(tmp_path / "log", tmp_path / "state").write()
    assert noted(tmp_path / "log", tmp_path / "state", **other).found() is None
    assert noted(tmp_path / "log", tmp_path / "state").found() is not None


def test_the_longest_names_fit_a_file_system_and_stay_apart(tmp_path: Path) -> None:
    wide = chr(0x20000)  # four bytes
    names = [{"group": wide * 64, "node_id": f"{wide * 31}{last}"} for last in "ab"]
    first, second = (noted(tmp_path / "log", None, **one) for one in names)
    assert first.write() == []
    assert first.found() is not None
    assert second.found() is None


def test_one_place_is_enough_and_the_other_ones_problem_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    beside = noted(tmp_path / "log", tmp_path / "file" / "state")
    (problem,) = beside.write()
    assert problem.startswith(f"{tmp_path}/file/state: ")
    assert beside.found() == beside.paths[0]
    in_state = noted(tmp_path / "file" / "log", tmp_path / "state")
    assert len(in_state.write()) == 1
    assert in_state.found() == in_state.paths[1]


@pytest.mark.parametrize("has_home", [True, False])
def test_without_any_place_the_error_names_them_and_the_way_out(
    tmp_path: Path, has_home: bool
) -> None:
    (tmp_path / "file").touch()
    note = noted(tmp_path / "file" / "log", tmp_path / "file" / "state" if has_home else None)
    with pytest.raises(GrowthNotNoted, match="--join") as refused:
        note.write()
    assert len(refused.value.problems) == 1 + has_home
    assert str(tmp_path / "file") in str(refused.value)
    assert note.found() is None


def test_a_start_writes_the_note_again_where_a_lost_disk_took_it(tmp_path: Path) -> None:
    data, home = tmp_path / "lib" / "log", tmp_path / "home" / "state"
    config = NodeConfig(group="g", node_id="n0", peers={"n0": "127.0.0.1:1"}, data_dir=data)
    note = noted(data, home)
    data.mkdir(parents=True)
    note.write()
    for lost in (home, data.parent, home, data.parent):  # each time another disk
        shutil.rmtree(lost)
        opened = open_and_restore(OsDisk(), config, Register(), state_folder=str(home))
        opened.store.close()
        assert opened.told is Told.GROWN
        assert all(Path(path).exists() for path in note.paths), lost


def test_a_note_that_cannot_be_written_again_is_told_and_counts(tmp_path: Path) -> None:
    note = noted(tmp_path / "log", tmp_path / "file" / "state")
    note.write()
    shutil.rmtree(tmp_path / "file")
    (tmp_path / "file").touch()
    (problem,) = note.mend()
    assert problem.startswith(f"{tmp_path}/file/state: ")
    assert note.found() == note.paths[0]


def test_a_removed_note_is_found_no_more(tmp_path: Path) -> None:
    note = noted(tmp_path / "log", tmp_path / "state")
    note.remove()
    note.write()
    note.write()
    (tmp_path / "log").mkdir()
    note.remove()
    assert note.found() is None
    assert not list((tmp_path / "state").iterdir())


def test_what_was_written_outlives_a_power_cut() -> None:
    disk = VirtualDisk(Chance(1, "disk"))
    note = GrowthNote(disk, NotedMember("g", "n0", "/data"), "/home/state")
    note.write()
    disk.cut_power(CrashStyle(keep=0.0, torn=0.0, names_in_order=True))
    assert note.found() == note.paths[0]
    disk.wipe("/home/state")
    assert note.found() == note.paths[1]
