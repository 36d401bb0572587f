"""Folders that Java DLedger 0.4 wrote, and the bytes that it writes."""

from __future__ import annotations

import csv
import hashlib
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from dledger.commands.offline_commands import dump, verify
from dledger.core.hard_state import HardState
from dledger.entry import Magic, decode_entries
from dledger.errors import HardStateLost
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.scan import scan_folder
from dledger.store.store_config import StoreConfig

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
NODES = sorted(path.parent for path in GOLDEN.rglob("entries.tsv"))
WITH_TERM = [node for node in NODES if (node / f"dledger-{node.name}" / "currterm").exists()]
CONFIG = StoreConfig(segment_bytes=256, index_segment_bytes=320, max_body_bytes=100)


def name(node: Path) -> str:
    return str(node.relative_to(GOLDEN))


def signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


def expected_entries(node: Path) -> list[dict[str, str]]:
    with (node / "entries.tsv").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def expected_state(node: Path) -> dict[str, str]:
    fields = (field.split("=") for field in (node / "state.txt").read_text().split())
    return dict(fields)


def test_the_golden_folders_are_there() -> None:
    assert len(NODES) == 16
    assert len(WITH_TERM) == 15


@pytest.mark.parametrize("node", NODES, ids=name)
def test_a_scan_finds_what_java_finds(node: Path) -> None:
    scan = scan_folder(str(node))
    found = []
    for (
        magic,
        size,
        index,
        term,
        pos,
        channel,
        chain,
        body_sum,
        body_size,
    ), path, at in scan.entries():
        with open(path, "rb") as file:
            file.seek(at + 48)
            digest = hashlib.sha256(file.read(body_size)).hexdigest()
        sums = (signed(chain), signed(body_sum))
        found.append([index, term, pos, size, channel, *sums, body_size, digest, magic])
    wanted = [
        [int(v) if k != "sha256" else v for k, v in row.items()] for row in expected_entries(node)
    ]
    assert found == wanted
    assert scan.record is None
    assert scan.committed == -1


@pytest.mark.parametrize("node", NODES, ids=name)
def test_a_scan_of_javas_index_and_data_finds_them_agreeing(node: Path) -> None:
    stale = [problem for problem in scan_folder(str(node)).verify() if problem.entry is None]
    assert stale == []


@pytest.mark.parametrize("node", NODES, ids=name)
def test_dump_prints_what_javas_own_reader_printed(node: Path) -> None:
    printed = CliRunner().invoke(dump, [str(node)])
    assert (printed.exit_code, printed.stderr) == (0, "")
    assert printed.stdout == (node / "entries.tsv").read_text()


@pytest.mark.parametrize("test", ["main", "tiny", "noop", "divergent/after"])
def test_verify_finds_the_three_folders_of_a_java_group_sound_and_equal(test: str) -> None:
    folders = [str(GOLDEN / test / node) for node in ("n0", "n1", "n2")]
    checked = CliRunner().invoke(verify, folders)
    assert checked.exit_code == 0, checked.output
    assert "equal, entry by entry" in checked.output


@pytest.mark.parametrize("node", WITH_TERM, ids=name)
def test_a_folder_of_java_is_adopted_continued_and_reopened(node: Path, tmp_path: Path) -> None:
    shutil.copytree(node, tmp_path / "copy")
    base = str(tmp_path / "copy")
    state, wanted = expected_state(node), expected_entries(node)
    vote = None if state["voteLeader"] == "null" else state["voteLeader"]
    store = open_store(OsDisk(), base, StoreConfig(), "g", node.name)
    assert store.hard_state == HardState(int(state["currTerm"]), vote, -1)
    assert store.last_index == store.unchecked_through == int(state["end"])
    assert store.last_term == int(state["endTerm"])
    assert store.end_pos == int(state["writePos"])
    assert store.recovered.entries_checked == len(wanted)
    for row in wanted:
        assert store.header_at(int(row["index"])).pos == int(row["pos"])
        assert store.term_at(int(row["index"])) == int(row["term"])
    term = store.hard_state.term + 1
    store.append(term, Magic.NORMAL, [b"ours %d" % i for i in range(30)])
    store.begin_sync(HardState(term, node.name)).run()
    store.note_committed(store.last_index - 3)
    store.close()

    scan = scan_folder(base)
    assert scan.verify() == []
    assert scan.committed == int(state["end"]) + 27
    again = open_store(OsDisk(), base, StoreConfig(), "g", node.name)
    assert again.hard_state == HardState(term, node.name, int(state["end"]) + 27)
    assert again.last_index == int(state["end"]) + 30
    assert again.recovered.cut is None
    last = decode_entries(again.read(again.last_index, again.last_index, 1))
    assert last[0].body == b"ours 29"
    again.close()


def test_what_java_cut_from_the_tail_is_zeroed_when_its_folder_is_adopted(tmp_path: Path) -> None:
    node = GOLDEN / "divergent" / "after" / "n2"
    shutil.copytree(node, tmp_path / "copy")
    store = open_store(OsDisk(), str(tmp_path / "copy"), StoreConfig(), "g", "n2")
    end = store.end_pos
    store.close()
    content = b"".join(
        path.read_bytes() for path in sorted((tmp_path / "copy/dledger-n2/data").iterdir())
    )
    assert end == 92101
    assert not any(content[end:])


def test_a_log_with_a_cut_head_is_adopted_from_its_first_kept_entry(tmp_path: Path) -> None:
    node = GOLDEN / "prefixblank" / "n0"
    shutil.copytree(node, tmp_path / "copy")
    folder = tmp_path / "copy" / "dledger-n0"
    with pytest.raises(HardStateLost):
        open_store(OsDisk(), str(tmp_path / "copy"), StoreConfig(), "g", "n0")
    (folder / "currterm").write_text("voteLeader=\ncurrTerm=3\n")
    store = open_store(OsDisk(), str(tmp_path / "copy"), StoreConfig(), "g", "n0")
    assert (store.first_index, store.last_index, store.begin_pos) == (18, 39, 1334)
    assert store.hard_state == HardState(3, None, -1)
    store.append(3, Magic.NORMAL, [b"more"])
    store.note_committed(40)
    store.close()
    again = open_store(OsDisk(), str(tmp_path / "copy"), StoreConfig(), "g", "n0")
    assert (again.first_index, again.last_index, again.begin_pos) == (18, 40, 1334)
    again.close()
    assert scan_folder(str(tmp_path / "copy")).verify() == []


def test_the_bytes_of_entries_and_index_are_javas_but_for_the_sums(tmp_path: Path) -> None:
    store = open_store(OsDisk(), str(tmp_path), CONFIG, "g", "n0")
    store.append(3, Magic.NORMAL, [b"body-%d" % i for i in range(5)])
    store.append(3, Magic.NOOP, [b""])
    store.close()
    data = tmp_path / "dledger-n0" / "data"
    first = bytearray((data / "00000000000000000000").read_bytes())
    second = bytearray((data / "00000000000000000256").read_bytes())
    assert len(first) == len(second) == 256
    for entry in range(4):
        assert any(first[entry * 54 + 36 : entry * 54 + 44])
        first[entry * 54 + 36 : entry * 54 + 44] = bytes(8)
    java = (
        "00000001 00000036 {0:016x} 0000000000000003 {1:016x} 00000000 00000000 00000000 00000006"
    )
    for entry in range(4):
        wanted = bytes.fromhex(java.format(entry, entry * 54)) + b"body-%d" % entry
        assert first[entry * 54 : entry * 54 + 54] == wanted
    assert first[216:] == bytes.fromhex("ffffffff00000028") + bytes(32)
    second[36:44] = second[54 + 36 : 54 + 44] = bytes(8)
    assert second[:54] == bytes.fromhex(java.format(4, 256)) + b"body-4"
    assert second[54:102] == bytes.fromhex(
        "00000002 00000030 0000000000000005 0000000000000003 0000000000000136" + "00" * 16
    )
    index = (tmp_path / "dledger-n0" / "index" / "00000000000000000000").read_bytes()
    assert len(index) == 320
    assert index[32:64] == bytes.fromhex(
        "00000001 0000000000000036 00000036 0000000000000001 0000000000000003"
    )
