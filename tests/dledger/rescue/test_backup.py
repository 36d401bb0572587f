"""A copy of a member's folder holds what was committed, and can begin a group."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from dledger.core.admission.standing import Standing
from dledger.entry import Magic, decode_entries
from dledger.errors import ConfigInvalid, DiskFailed
from dledger.rescue.backup import BackupFailed, back_up
from dledger.rescue.group_recovery import recover_group
from dledger.store.disk import OsDisk
from dledger.store.generation import Generation
from dledger.store.generation_file import GenerationFile
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.snapshot_folder import SnapshotFolder
from dledger.store.snapshot_format import SnapshotHeader
from dledger.store.standing_file import StandingFile
from dledger.store.store_config import StoreConfig
from tests.dledger.commands.typed_command import typed

MARK = "0123456789abcdef"

SMALL = StoreConfig(segment_bytes=4096, index_segment_bytes=32 * 1024, max_body_bytes=1024)


def opened(folder: Path, node_id: str = "n0") -> SegmentStore:
    return open_store(OsDisk(), str(folder), SMALL, "g", node_id)


def a_member(folder: Path, *, entries: int = 60, committed: int = 50) -> Path:
    store = opened(folder)
    for n in range(entries):
        store.append(1, Magic.NORMAL, [b"body-%d" % n * 20])
    store.note_committed(committed)
    store.close()
    home = folder / "dledger-n0"
    StandingFile(OsDisk(), str(home)).set(Standing.PROVEN)
    return home


def bodies(store: SegmentStore) -> list[bytes]:
    found, at = [], store.first_index
    while at <= store.last_index:  # a read ends with its segment
        entries = decode_entries(store.read(at, store.last_index, 2**30))
        found += [entry.body for entry in entries if entry.magic == Magic.NORMAL]
        at = entries[-1].index + 1
    return found


def test_the_copy_holds_exactly_what_is_recorded_as_committed(tmp_path: Path) -> None:
    home = a_member(tmp_path / "a")
    made = back_up(str(home), str(tmp_path / "b"))
    assert (made.first_index, made.last_index, made.last_term) == (0, 50, 1)
    store = opened(tmp_path / "b")
    try:
        assert bodies(store) == [b"body-%d" % n * 20 for n in range(51)]
        assert store.standing is Standing.LOST
    finally:
        store.close()


def test_a_copy_may_be_made_while_the_member_writes(tmp_path: Path) -> None:
    home = a_member(tmp_path / "a")
    store = opened(tmp_path / "a")
    try:
        store.append(1, Magic.NORMAL, [b"later"] * 100)
        assert back_up(str(home), str(tmp_path / "b")).last_index == 50
    finally:
        store.close()


def test_a_group_begins_again_from_the_copy_under_another_name(tmp_path: Path) -> None:
    home = a_member(tmp_path / "a")
    made = back_up(str(home), str(tmp_path / "b"), "n7")
    recover_group(made.folder, made.last_index, "10.0.0.7:20911", mark=MARK)
    store = opened(tmp_path / "b", "n7")
    try:
        assert bodies(store)[-1] == b"body-50" * 20
        assert store.hard_state.committed == store.last_index == 51
        assert store.standing is Standing.PROVEN
    finally:
        store.close()
    assert GenerationFile(OsDisk(), made.folder).generation == Generation(1, MARK)
    assert not (home / "generation").exists()


def test_the_generation_goes_with_the_copy(tmp_path: Path) -> None:
    home = a_member(tmp_path / "a", entries=51)
    recover_group(str(home), 50, "10.0.0.1:20911", mark=MARK)
    assert back_up(str(home), str(tmp_path / "b")).generation == 1
    copied = GenerationFile(OsDisk(), str(tmp_path / "b" / "dledger-n0"))
    assert copied.generation == Generation(1, MARK)


def test_the_newest_snapshot_that_is_committed_goes_with_it(tmp_path: Path) -> None:
    home = a_member(tmp_path / "a")
    folder = SnapshotFolder(OsDisk(), str(home))
    folder.open()
    for index in (10, 20, 55):
        folder.write(SnapshotHeader(index, 1, 0, 48, 1, "g"), [b"state"], lambda: False)
    made = back_up(str(home), str(tmp_path / "b"))
    assert made.snapshot_index == 20
    assert SnapshotFolder(OsDisk(), made.folder).indexes() == [20]


def test_a_broken_log_is_not_copied(tmp_path: Path) -> None:
    home = a_member(tmp_path / "a")
    segment = sorted((home / "data").iterdir())[1]
    content = bytearray(segment.read_bytes())
    content[100] ^= 1
    segment.write_bytes(content)
    with pytest.raises(BackupFailed, match="broken after entry"):
        back_up(str(home), str(tmp_path / "b"))


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    home = a_member(tmp_path / "a")
    back_up(str(home), str(tmp_path / "b"))
    with pytest.raises(ConfigInvalid, match="there already"):
        back_up(str(home), str(tmp_path / "b"))
    with pytest.raises(ConfigInvalid, match="no log"):
        back_up(str(tmp_path / "c"), str(tmp_path / "d"))


def test_what_goes_away_meanwhile_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = a_member(tmp_path / "a")
    real, failures, looks = OsDisk.open, [1], [0]

    def failing(self: OsDisk, path: str, *, writable: bool = True) -> object:
        if path.startswith(str(home)) and path.endswith("4096") and not writable:
            looks[0] += 1
            if failures and looks[0] % 2 == 0:  # it is checked first, and then copied
                failures.pop()
                raise FileNotFoundError(2, "gone", path)
        return real(self, path, writable=writable)

    monkeypatch.setattr(OsDisk, "open", failing)
    assert back_up(str(home), str(tmp_path / "b")).last_index == 50
    shutil.rmtree(tmp_path / "b")
    looks[0] = 0
    failures.extend([1] * 50)
    with pytest.raises(BackupFailed, match="was removed"):
        back_up(str(home), str(tmp_path / "b"))


def test_a_target_that_cannot_be_made_is_named_as_such(tmp_path: Path) -> None:
    source = a_member(tmp_path / "a")

    class Elsewhere(OsDisk):
        """A disk on which no folder of copies can be made, as in /proc."""

        def make_folder(self, path: str) -> None:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)

    with pytest.raises(DiskFailed, match="back up") as caught:
        back_up(str(source), str(tmp_path / "copies"), disk=Elsewhere())
    assert str(tmp_path / "copies") in str(caught.value)


PEERS = "n0=127.0.0.1:1,n1=127.0.0.1:2"


@pytest.mark.parametrize("name", ["a/b", "../b", "a b", "x" * 65])
def test_a_group_is_not_begun_again_halfway_under_a_name_that_no_member_can_have(
    tmp_path: Path, name: str
) -> None:
    home, target = a_member(tmp_path / "a"), tmp_path / "t"
    words = ["restore", home, "--dir", target, "--peers", PEERS]
    ended = typed(*words, "--node", name, "--address", "127.0.0.1:3")
    assert ended.returncode == 1
    assert "--node" in ended.stderr
    assert not target.exists()
    with pytest.raises(ConfigInvalid, match="node_id"):
        back_up(str(home), str(target), "a/b")
    assert not target.exists()


def test_a_copy_without_entries_leaves_the_way_free_for_another_copy(tmp_path: Path) -> None:
    empty, full = (
        a_member(tmp_path / name, entries=count, committed=count - 1)
        for name, count in (("empty", 0), ("full", 60))
    )
    target = tmp_path / "t"
    refused, done = (
        typed("restore", home, "--dir", target, "--peers", PEERS) for home in (empty, full)
    )
    assert refused.returncode == 1
    assert "it holds no entry" in refused.stderr
    assert done.returncode == 0, done.stderr
