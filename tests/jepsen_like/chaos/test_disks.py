"""Disks of members, whose power can be cut."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from jepsen_like.chance import Chance
from jepsen_like.chaos.disks import (
    OWNER,
    DiskStuck,
    claim_disks,
    cut_power,
    has_power,
    image_of,
    powered_disk,
    take_down_orphans,
)
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import Member
from jepsen_like.chaos.nemeses.disk_faults import power_cut
from jepsen_like.chaos.nemeses.executor import Skipped


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "n0"
    with powered_disk(folder) as made:
        if not made:
            pytest.skip("needs root, loop devices and mkfs.ext4")
        yield folder


def write(path: Path, content: bytes, *, sync: bool) -> None:
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def test_a_power_cut_takes_what_was_not_synced_and_nothing_else(disk: Path) -> None:
    write(disk / "log", b"acknowledged", sync=True)
    write(disk / "log", b", lost", sync=False)
    write(disk / "other", b"lost", sync=False)
    cut_power(disk)
    assert (disk / "log").read_bytes() == b"acknowledged"
    assert not (disk / "other").exists()
    write(disk / "log", b" again", sync=True)
    cut_power(disk)
    assert (disk / "log").read_bytes() == b"acknowledged again"


def test_a_disk_with_open_files_is_stuck(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jepsen_like.chaos.disks.BUSY_TIMEOUT_S", 0.05)
    with (disk / "log").open("wb"), pytest.raises(DiskStuck, match="busy"):
        cut_power(disk)


def test_what_a_disk_holds_stays_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "n0"
    with powered_disk(folder) as made:
        if not made:
            pytest.skip("needs root, loop devices and mkfs.ext4")
        assert has_power(folder)
        (folder / "log").write_bytes(b"entries")
    assert not has_power(folder)
    assert not image_of(folder).exists()
    assert [path.name for path in folder.iterdir()] == ["log"]
    assert (folder / "log").read_bytes() == b"entries"


def test_disks_of_a_run_whose_process_is_gone_are_unmounted_and_those_of_others_stay(
    disk: Path,
) -> None:
    (disk / "log").write_bytes(b"entries")
    take_down_orphans()  # nobody knows whose it is
    claim_disks(disk.parent)
    take_down_orphans()
    assert has_power(disk)
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    (disk.parent / OWNER).write_text(str(ended.pid))
    take_down_orphans()
    assert not os.path.ismount(disk)
    assert (disk / "log").read_bytes() == b"entries"


def test_a_power_cut_is_left_out_where_members_have_no_disks(tmp_path: Path) -> None:
    group = Group(lambda member: None)
    group.start(Member("n0", [], tmp_path / "n0.log", tmp_path))

    async def cut() -> None:
        async with power_cut(group, Chance(1, "fault 0"), "power-all"):
            raise AssertionError("there is nothing to cut")

    with pytest.raises(Skipped, match=r"mkfs\.ext4"):
        trio.run(cut)
    assert group.members["n0"].holds == 0
