"""Whose folder it is: locks, identities, lost records, and settings that do not fit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dledger.core.hard_state import HardState
from dledger.entry import LARGEST_BODY_BYTES, Magic
from dledger.errors import (
    ConfigInvalid,
    DataFolderLocked,
    DataFolderMismatch,
    HardStateLost,
    HardStateOutdated,
    LogCorrupt,
)
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig

CONFIG = StoreConfig(segment_bytes=4096, index_segment_bytes=320, max_body_bytes=2000)


def reopen(base: Path) -> SegmentStore:
    return open_store(OsDisk(), str(base), CONFIG, "g", "n0")


def build(base: Path, count: int) -> None:
    store = reopen(base)
    store.append(1, Magic.NORMAL, [b"entry-%d" % index for index in range(count)])
    store.close()


def test_a_folder_is_open_once(tmp_path: Path) -> None:
    store = reopen(tmp_path)
    with pytest.raises(DataFolderLocked, match="open in this process already"):
        reopen(tmp_path)
    store.close()
    reopen(tmp_path).close()


def test_a_folder_that_another_process_has_open_is_told_apart(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
    program = hold + "print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(DataFolderLocked, match="open in another process"):
            OsDisk().lock(path)
    OsDisk().lock(path).close()


def test_a_failed_open_releases_the_folder(tmp_path: Path) -> None:
    build(tmp_path, 5)
    with pytest.raises(DataFolderMismatch):
        open_store(OsDisk(), str(tmp_path), CONFIG, "another", "n0")
    reopen(tmp_path).close()


def test_a_folder_of_another_node_is_refused(tmp_path: Path) -> None:
    build(tmp_path, 5)
    (tmp_path / "dledger-n0").rename(tmp_path / "dledger-n1")
    with pytest.raises(DataFolderMismatch, match="n0 of group g"):
        open_store(OsDisk(), str(tmp_path), CONFIG, "g", "n1")


def test_a_log_without_its_hard_state_is_refused(tmp_path: Path) -> None:
    build(tmp_path, 5)
    (tmp_path / "dledger-n0" / "hard-state").unlink()
    with pytest.raises(HardStateLost):
        reopen(tmp_path)


def test_javas_old_term_is_not_believed_twice(tmp_path: Path) -> None:
    folder = tmp_path / "dledger-n0"
    folder.mkdir()
    (folder / "currterm").write_text("voteLeader=n2\ncurrTerm=12\n")
    store = reopen(tmp_path)
    assert store.hard_state == HardState(12, "n2", -1)
    store.append(13, Magic.NORMAL, [b"a"])
    store.close()
    (folder / "hard-state").unlink()
    with pytest.raises(HardStateLost):
        reopen(tmp_path)


@pytest.mark.parametrize("java", ["voteLeader=n2\ncurrTerm=13\n", "voteLeader=n0\ncurrTerm=12\n"])
def test_a_folder_in_which_java_ran_since_is_refused_until_our_record_is_removed(
    java: str, tmp_path: Path
) -> None:
    # It may have voted in a newer term, and appended what our record says nothing of.
    folder = tmp_path / "dledger-n0"
    store = reopen(tmp_path)
    store.append(12, Magic.NORMAL, [b"a"])
    store.begin_sync(HardState(12, "n0")).run()
    store.close()
    (folder / "currterm").write_text(java)
    for _ in range(2):
        with pytest.raises(HardStateOutdated, match="take the folder back"):
            reopen(tmp_path)
    (folder / "hard-state").unlink()
    store = reopen(tmp_path)
    assert store.hard_state.term == int(java[-3:])
    assert store.hard_state.voted_for == java[11:13]
    assert store.unchecked_through == 0
    store.close()
    reopen(tmp_path).close()


def test_java_that_ran_before_anything_of_ours_was_recorded_is_noticed_too(tmp_path: Path) -> None:
    store = reopen(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "killed", ignore=shutil.ignore_patterns("killed"))
    store.close()
    (tmp_path / "killed/dledger-n0/currterm").write_text("voteLeader=n1\ncurrTerm=1\n")
    with pytest.raises(HardStateOutdated):
        reopen(tmp_path / "killed")


def test_an_adoption_that_a_crash_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "dledger-n0"
    folder.mkdir()
    (folder / "currterm").write_text("voteLeader=n2\ncurrTerm=12\n")
    store = reopen(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "crashed", ignore=shutil.ignore_patterns("crashed"))
    store.close()
    crashed = tmp_path / "crashed" / "dledger-n0"
    (crashed / "currterm.adopted").rename(crashed / "currterm")
    store = reopen(tmp_path / "crashed")
    assert store.hard_state == HardState(12, "n2", -1)
    store.close()
    assert not (crashed / "currterm").exists()


def test_an_unreadable_term_of_java_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "dledger-n0"
    folder.mkdir()
    (folder / "currterm").write_text("voteLeader=n2\n")
    with pytest.raises(LogCorrupt, match="currTerm"):
        reopen(tmp_path)


@pytest.mark.parametrize("bad", ["", "a/b", "x" * 128, "\0"])
def test_names_that_do_not_fit_are_refused(tmp_path: Path, bad: str) -> None:
    with pytest.raises(ConfigInvalid):
        open_store(OsDisk(), str(tmp_path), CONFIG, bad, "n0")
    with pytest.raises(ConfigInvalid):
        open_store(OsDisk(), str(tmp_path), CONFIG, "g", bad)


@pytest.mark.parametrize(
    "settings",
    [
        {"segment_bytes": 55, "max_body_bytes": 0},
        {"segment_bytes": 1000},
        {"segment_bytes": 2**31},
        {"index_segment_bytes": 33},
        {"index_segment_bytes": 0},
        {"max_body_bytes": LARGEST_BODY_BYTES + 1},
        {"max_body_bytes": -1},
        {"spare_segments": 9},
    ],
)
def test_sizes_that_contradict_each_other_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigInvalid):
        StoreConfig(**settings)
