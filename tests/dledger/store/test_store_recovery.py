"""Opening after crashes and damage: every row of the decision table, every byte of the tail."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from dledger.core.hard_state import HardState
from dledger.entry import HEADER_BYTES, Entry, Magic, decode_entries
from dledger.errors import (
    LogCorrupt,
)
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.recovery_table import TABLE, Evidence, Verdict, decide
from dledger.store.scan import ProblemKind, scan_folder
from dledger.store.segment import file_name
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from dledger.store.walk import Findings
from tests.dledger.store.stored_entries import read_all

CONFIG = StoreConfig(segment_bytes=4096, index_segment_bytes=320, max_body_bytes=2000)


def reopen(base: Path, config: StoreConfig = CONFIG) -> SegmentStore:
    return open_store(OsDisk(), str(base), config, "g", "n0")


def text(index: int, size: int = 100) -> bytes:
    """A body without zero bytes, so that a flipped byte never looks like a lost write."""
    return (b"entry-%d " % index * size)[:size]


def build(base: Path, count: int = 60, committed: int = -1) -> list[Entry]:
    """A closed store of `count` entries; what is in it."""
    store = reopen(base)
    store.append(1, Magic.NORMAL, [text(index) for index in range(count)])
    store.begin_sync(HardState(1, "n0")).run()
    store.note_committed(committed)
    entries = read_all(store)
    store.close()
    return entries


def segment(base: Path, pos: int, size: int = 4096) -> Path:
    return base / "dledger-n0" / "data" / file_name(pos - pos % size)


def damage(base: Path, pos: int, data: bytes, size: int = 4096) -> None:
    with segment(base, pos, size).open("r+b") as file:
        file.seek(pos % size)
        file.write(data)


def flip(base: Path, pos: int, size: int = 4096) -> None:
    with segment(base, pos, size).open("r+b") as file:
        file.seek(pos % size)
        byte = file.read(1)[0]
        file.seek(pos % size)
        file.write(bytes((byte ^ 0xFF,)))


# --- the table --------------------------------------------------------------------------------


def test_every_combination_of_evidence_has_exactly_one_verdict() -> None:
    for intact, recorded, synced, unfinished, behind in itertools.product((True, False), repeat=5):
        findings = Findings(*[intact] * 5)
        evidence = Evidence(findings, recorded, synced, unfinished, behind)
        assert sum(row.agrees(evidence) for row in TABLE) == 1
        verdict = decide(evidence).verdict
        assert (verdict is Verdict.KEEP) == intact
        if not intact and recorded:
            assert verdict is Verdict.REFUSE
        if not intact and behind and not unfinished:
            assert verdict is Verdict.REFUSE
        if not intact and synced:
            assert verdict in {Verdict.REFUSE, Verdict.CUT_AND_MARK}
        else:
            assert verdict is not Verdict.CUT_AND_MARK


def test_each_failed_check_is_a_broken_record() -> None:
    for failed in range(5):
        findings = Findings(*[at != failed for at in range(5)])
        assert decide(Evidence(findings, False, False, False, True)).verdict is Verdict.REFUSE
        assert findings.problem


def test_intact_entries_are_kept(tmp_path: Path) -> None:
    entries = build(tmp_path)
    store = reopen(tmp_path)
    assert read_all(store) == entries
    assert store.recovered.cut is None
    store.close()


def test_a_broken_committed_entry_is_refused_even_if_it_is_the_last(tmp_path: Path) -> None:
    entries = build(tmp_path, committed=59)
    before = segment(tmp_path, entries[59].pos).read_bytes()
    damage(tmp_path, entries[59].pos + 60, bytes(30))
    broken = segment(tmp_path, entries[59].pos).read_bytes()
    assert broken != before
    with pytest.raises(LogCorrupt) as refused:
        reopen(tmp_path)
    assert refused.value.path == str(segment(tmp_path, entries[59].pos))
    assert refused.value.offset == entries[59].pos % 4096
    assert "entry 59" in refused.value.problem
    assert segment(tmp_path, entries[59].pos).read_bytes() == broken


def test_a_lost_committed_tail_is_refused(tmp_path: Path) -> None:
    entries = build(tmp_path, committed=59)
    damage(tmp_path, entries[58].pos, bytes(entries[59].pos + 148 - entries[58].pos))
    with pytest.raises(LogCorrupt, match="recorded as committed"):
        reopen(tmp_path)


def test_a_broken_last_entry_is_cut(tmp_path: Path) -> None:
    entries = build(tmp_path)
    flip(tmp_path, entries[59].pos + 70)
    store = reopen(tmp_path)
    assert read_all(store) == entries[:59]
    assert store.recovered.cut is not None
    assert store.recovered.cut.index == 59
    store.close()
    assert not any(segment(tmp_path, entries[59].pos).read_bytes()[entries[59].pos % 4096 :])


def test_a_broken_entry_before_intact_ones_is_refused(tmp_path: Path) -> None:
    entries = build(tmp_path)
    inner = next(entry for entry in entries[40:] if not sector_ends_within(entry))
    flip(tmp_path, inner.pos + 70)
    with pytest.raises(LogCorrupt, match="intact entries follow") as refused:
        reopen(tmp_path)
    assert refused.value.offset == inner.pos % 4096


def sector_ends_within(entry: Entry) -> bool:
    return entry.pos // 512 != (entry.pos + HEADER_BYTES + len(entry.body)) // 512


def test_a_lost_sector_before_intact_entries_is_a_write_that_was_never_synced(
    tmp_path: Path,
) -> None:
    entries = build(tmp_path)
    lost = 4096 + 1024
    damage(tmp_path, lost, bytes(512))
    store = reopen(tmp_path)
    kept = [entry for entry in entries if entry.pos + HEADER_BYTES + len(entry.body) <= lost]
    assert read_all(store) == kept
    assert store.end_pos <= lost
    assert len(segment(tmp_path, lost).read_bytes()) == 4096
    store.append(2, Magic.NORMAL, [text(1)])
    store.close()
    store = reopen(tmp_path)
    assert read_all(store)[:-1] == kept
    store.close()


def test_a_lost_sector_under_committed_entries_is_refused(tmp_path: Path) -> None:
    build(tmp_path, committed=40)
    damage(tmp_path, 4096 + 512, bytes(512))
    with pytest.raises(LogCorrupt):
        reopen(tmp_path)


def test_every_torn_length_of_the_last_entry_is_cut(tmp_path: Path) -> None:
    entries = build(tmp_path / "whole", 29)
    store = reopen(tmp_path / "whole")
    store.append(1, Magic.NORMAL, [b"short body"])
    last = read_all(store)[-1]
    store.close()
    size = HEADER_BYTES + len(last.body)
    for kept in range(size):
        base = tmp_path / "torn"
        shutil.copytree(tmp_path / "whole", base)
        damage(base, last.pos + kept, bytes(size - kept))
        store = reopen(base)
        assert read_all(store) == entries
        store.append(1, Magic.NORMAL, [b"after"])
        store.close()
        store = reopen(base)
        assert store.last_index == 29
        assert decode_entries(store.read(29, 29, 1))[0].body == b"after"
        store.close()
        shutil.rmtree(base)


def test_a_flipped_byte_in_an_inner_header_never_yields_another_entry(tmp_path: Path) -> None:
    entries = build(tmp_path / "whole", 12)
    refused = 0
    for at in range(HEADER_BYTES):
        base = tmp_path / "flipped"
        shutil.copytree(tmp_path / "whole", base)
        flip(base, entries[6].pos + at)
        try:
            store = reopen(base)
        except LogCorrupt:
            refused += 1
        else:
            assert read_all(store) == entries[:6]
            store.close()
        shutil.rmtree(base)
    assert refused >= HEADER_BYTES - 4


@pytest.mark.parametrize("zeroed_to", [0, 100, 512, 700, 1500])
def test_a_truncation_that_the_power_cut_short_is_finished_at_the_start(
    tmp_path: Path, zeroed_to: int
) -> None:
    """The magic of the first entry to go is durable first; of the rest, anything may be there."""
    entries = build(tmp_path, 27)
    first_gone = entries[10].pos
    damage(tmp_path, first_gone, bytes(4))
    damage(tmp_path, 2048, bytes(zeroed_to))  # a later sector, torn in its middle
    store = reopen(tmp_path)
    assert read_all(store) == entries[:10]
    assert store.end_pos == first_gone
    store.close()
    assert not any(segment(tmp_path, 0).read_bytes()[first_gone:])


# --- files ------------------------------------------------------------------------------------


def test_a_file_missing_between_others_is_refused(tmp_path: Path) -> None:
    build(tmp_path, 120)
    segment(tmp_path, 4096).unlink()
    with pytest.raises(LogCorrupt, match="missing between") as refused:
        reopen(tmp_path)
    assert refused.value.path == str(segment(tmp_path, 4096))


def test_a_missing_first_file_is_refused(tmp_path: Path) -> None:
    build(tmp_path, 120, committed=100)
    segment(tmp_path, 0).unlink()
    with pytest.raises(LogCorrupt, match="missing"):
        reopen(tmp_path)


def test_all_data_missing_is_refused_once_something_was_committed(tmp_path: Path) -> None:
    build(tmp_path, 120, committed=3)
    for path in (tmp_path / "dledger-n0" / "data").iterdir():
        path.unlink()
    with pytest.raises(LogCorrupt):
        reopen(tmp_path)


def test_an_inner_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    build(tmp_path, 120)
    with segment(tmp_path, 4096).open("r+b") as file:
        file.truncate(4000)
    with pytest.raises(LogCorrupt, match="4000 bytes"):
        reopen(tmp_path)


@pytest.mark.parametrize("length", [0, 1, 7, 511, 4095])
def test_a_last_file_of_less_than_full_length_was_being_created(
    tmp_path: Path, length: int
) -> None:
    entries = build(tmp_path, 20)
    path = segment(tmp_path, 4096)
    assert not path.exists()
    path.write_bytes(bytes(length))
    store = reopen(tmp_path)
    assert read_all(store) == entries
    assert not path.exists()
    store.append(1, Magic.NORMAL, [text(i) for i in range(20)])
    assert path.stat().st_size == 4096
    store.close()


def test_an_only_file_of_less_than_full_length_was_being_created(tmp_path: Path) -> None:
    reopen(tmp_path).close()
    segment(tmp_path, 0).write_bytes(b"")
    store = reopen(tmp_path, StoreConfig())
    store.append(1, Magic.NORMAL, [text(1)])
    store.close()
    assert segment(tmp_path, 0).stat().st_size == 4096


def test_a_blank_without_a_next_segment_is_not_part_of_the_log(tmp_path: Path) -> None:
    entries = build(tmp_path, 30)
    end = entries[26].pos + 148
    assert entries[27].pos == 4096
    segment(tmp_path, 4096).unlink()
    store = reopen(tmp_path)
    assert (store.last_index, store.end_pos) == (26, end)
    store.append(2, Magic.NORMAL, [b"fits"])
    assert store.end_pos == end + 52
    store.close()


def test_files_keep_their_length_whatever_is_configured(tmp_path: Path) -> None:
    entries = build(tmp_path)
    store = reopen(tmp_path, StoreConfig())
    assert store.segment_bytes == 4096
    store.append(1, Magic.NORMAL, [text(i) for i in range(60)])
    assert read_all(store)[:60] == entries
    store.close()
    assert {path.stat().st_size for path in (tmp_path / "dledger-n0/data").iterdir()} == {4096}


def test_other_files_in_the_data_folder_are_left_alone(tmp_path: Path) -> None:
    entries = build(tmp_path)
    foreign = tmp_path / "dledger-n0" / "data" / "lost+found"
    foreign.write_text("here before")
    store = reopen(tmp_path)
    assert read_all(store) == entries
    store.close()
    assert foreign.read_text() == "here before"
    assert [p.kind for p in scan_folder(str(tmp_path)).problems] == [ProblemKind.FOREIGN_FILE]


# --- the index --------------------------------------------------------------------------------


def index_content(base: Path) -> bytes:
    paths = sorted((base / "dledger-n0" / "index").iterdir())
    return b"".join(path.read_bytes() for path in paths)


@pytest.mark.parametrize("committed", [-1, 50, 199])
def test_a_missing_index_is_rebuilt(tmp_path: Path, committed: int) -> None:
    entries = build(tmp_path, 200, committed)
    whole = index_content(tmp_path)
    shutil.rmtree(tmp_path / "dledger-n0" / "index")
    store = reopen(tmp_path)
    assert read_all(store) == entries
    store.close()
    assert index_content(tmp_path) == whole


@pytest.mark.parametrize("number", [0, 5, 12, 19])
def test_a_missing_index_file_is_rebuilt(tmp_path: Path, number: int) -> None:
    entries = build(tmp_path, 200, 190)
    whole = index_content(tmp_path)
    (tmp_path / "dledger-n0" / "index" / file_name(320 * number)).unlink()
    store = reopen(tmp_path)
    assert read_all(store) == entries
    store.close()
    assert index_content(tmp_path) == whole


def test_wrong_index_units_behind_the_synced_part_are_put_right(tmp_path: Path) -> None:
    entries = build(tmp_path, 50)
    whole = index_content(tmp_path)
    path = tmp_path / "dledger-n0" / "index" / file_name(320)
    path.write_bytes(b"\xff" * 320)
    store = reopen(tmp_path)
    assert read_all(store) == entries
    store.close()
    assert index_content(tmp_path) == whole


def test_only_segments_behind_the_recorded_ones_are_checked_again(tmp_path: Path) -> None:
    build(tmp_path, 200, committed=190)
    store = reopen(tmp_path)
    assert store.recovered.entries_checked < 60
    assert store.first_index == 0
    assert len(read_all(store)) == 200
    store.close()


# --- nothing comes back -----------------------------------------------------------------------


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("shorter", [0, 1, 3])
def test_truncated_entries_never_come_back(tmp_path: Path, sync: bool, shorter: int) -> None:
    store = reopen(tmp_path)
    store.append(1, Magic.NORMAL, [text(i) for i in range(80)])
    store.begin_sync(HardState(1, None)).run()
    store.truncate_after(9)
    if shorter:
        store.append(1, Magic.NORMAL, [text(90 + i) for i in range(shorter)])
    kept = read_all(store)
    if sync:
        store.begin_sync(None).run()
    abandon(store)
    again = reopen(tmp_path)
    assert read_all(again) == kept
    assert again.last_index == 9 + shorter
    again.close()
    assert len(scan_folder(str(tmp_path)).verify()) == 0


def abandon(store: SegmentStore) -> None:
    """What the end of the process does: files are closed, nothing is synced or recorded."""
    store._files.close()


def test_a_killed_process_loses_nothing_that_was_written(tmp_path: Path) -> None:
    store = reopen(tmp_path)
    store.append(7, Magic.NORMAL, [text(i) for i in range(80)])
    entries = read_all(store)
    abandon(store)
    again = reopen(tmp_path)
    assert read_all(again) == entries
    assert again.hard_state == HardState(7, None, -1)
    again.close()
