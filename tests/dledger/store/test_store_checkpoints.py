"""A start walks from the last checkpoint on, also in the middle of a segment, and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.core.hard_state import HardState
from dledger.entry import HEADER_BYTES, Entry, Magic
from dledger.errors import ConfigInvalid, LogCorrupt
from dledger.store.disk import OsDisk, OsDiskFile
from dledger.store.hard_state_file import HardStateFile, StoreRecord, newest_record
from dledger.store.index_unit import UNIT, UNIT_BYTES
from dledger.store.open_store import open_store
from dledger.store.scan import ProblemKind, scan_folder
from dledger.store.scrubber import Scrubber
from dledger.store.segment import file_name
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from dledger.store.walk_begins import WalkBegin, WalkBegins
from tests.dledger.store.stored_entries import read_all

SEGMENT_BYTES = 1 << 20
CONFIG = StoreConfig(
    segment_bytes=SEGMENT_BYTES,
    index_segment_bytes=1 << 16,
    max_body_bytes=2000,
    spare_segments=0,
    checkpoint_bytes=4096,
)
BODY_BYTES = 100
ENTRY_BYTES = HEADER_BYTES + BODY_BYTES


def reopen(base: Path, disk: OsDisk | None = None) -> SegmentStore:
    return open_store(disk or OsDisk(), str(base), CONFIG, "g", "n0")


def append(store: SegmentStore, count: int) -> None:
    """Entries in one append, synced."""
    first = store.last_index + 1
    bodies = [(b"entry-%d " % index * BODY_BYTES)[:BODY_BYTES] for index in range(count)]
    assert store.append(1, Magic.NORMAL, bodies).first == first
    store.begin_sync(HardState(1, "n0") if first == 0 else None).run()


def record_of(base: Path) -> StoreRecord:
    newest = newest_record((base / "dledger-n0" / "hard-state").read_bytes())
    assert newest is not None
    return newest[0]


def data(base: Path) -> Path:
    return base / "dledger-n0" / "data" / file_name(0)


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes((byte ^ 0xFF,)))


def build(base: Path, count: int = 1000, committed: int = 990) -> list[Entry]:
    """A store of one segment whose process was killed; what is in it."""
    store = reopen(base)
    for _ in range(count // 10):
        append(store, 10)
    store.note_committed(committed)
    store.save_committed()
    entries = read_all(store)
    store._files.close()
    return entries


# --- what a start walks -----------------------------------------------------------------------


@pytest.mark.parametrize("killed", [True, False])
def test_a_start_checks_only_what_lies_behind_the_last_checkpoint(
    tmp_path: Path, killed: bool
) -> None:
    entries = build(tmp_path)
    if not killed:
        reopen(tmp_path).close()
    store = reopen(tmp_path)
    assert 9 <= store.recovered.entries_checked <= 2 * CONFIG.checkpoint_bytes // ENTRY_BYTES + 10
    assert read_all(store) == entries
    store.append(2, Magic.NORMAL, [b"goes on"])
    store.close()
    store = reopen(tmp_path)
    assert store.last_index == 1000
    assert store.chain_at(1000) == read_chain(tmp_path, 1000)
    store.close()
    assert scan_folder(str(tmp_path)).verify() == []


def read_chain(base: Path, index: int) -> int:
    places = {place.header.index: place for place in scan_folder(str(base)).entries()}
    return places[index].header.chain_crc


def test_what_is_not_committed_is_always_checked(tmp_path: Path) -> None:
    build(tmp_path, committed=-1)
    assert record_of(tmp_path).scan_index == 0
    store = reopen(tmp_path)
    assert store.recovered.entries_checked == 1000
    store.close()


def test_a_checkpoint_lies_before_a_committed_entry(tmp_path: Path) -> None:
    build(tmp_path, committed=500)
    record = record_of(tmp_path)
    assert 500 - CONFIG.checkpoint_bytes // ENTRY_BYTES - 1 <= record.scan_index <= 500
    assert record.scan_pos == record.scan_index * ENTRY_BYTES


def test_the_log_is_cut_behind_a_checkpoint_and_goes_on(tmp_path: Path) -> None:
    entries = build(tmp_path, committed=500)
    store = reopen(tmp_path)
    store.truncate_after(500)
    store.append(3, Magic.NORMAL, [b"another"])
    store._files.close()
    store = reopen(tmp_path)
    assert read_all(store)[:-1] == entries[:501]
    assert store.last_term == 3
    store.close()


# --- the index before a checkpoint is durable -----------------------------------------------------


class IndexTwin(OsDisk):
    """Knows of each index file what the last sync made durable."""

    def __init__(self) -> None:
        self.durable: dict[str, bytes] = {}
        self.index_syncs = 0

    def open(self, path: str, *, writable: bool = True) -> OsDiskFile:
        return TwinFile(self, super().open(path, writable=writable))

    def create(self, path: str) -> OsDiskFile:
        return TwinFile(self, super().create(path))


class TwinFile(OsDiskFile):
    def __init__(self, disk: IndexTwin, file: OsDiskFile) -> None:
        super().__init__(file.path, file._descriptor)
        self._disk = disk

    def sync(self) -> None:
        super().sync()
        self._disk.durable[self.path] = self.read(self.size(), 0)
        self._disk.index_syncs += "/index/" in self.path


def test_no_checkpoint_lies_behind_an_index_that_a_power_cut_may_take(tmp_path: Path) -> None:
    disk = IndexTwin()
    store = reopen(tmp_path, disk)
    # The index is synced with the second append. With the third there is another place to begin
    # from, and too little was written since for a sync of the index.
    for count in (27, 20, 12):
        append(store, count)
    assert disk.index_syncs == 2  # one when the file was made
    entries = read_all(store)
    store.note_committed(store.last_index)
    store.save_committed()
    store._files.close()
    path = tmp_path / "dledger-n0" / "index" / file_name(0)
    durable, written = disk.durable[str(path)], path.read_bytes()
    assert durable != written
    for survives in range(0, len(written), 512):  # one sector of what was not synced
        after = bytearray(durable)
        after[survives : survives + 512] = written[survives : survives + 512]
        path.write_bytes(after)
        store = reopen(tmp_path)
        assert read_all(store) == entries
        store._files.close()
        assert path.read_bytes() == written


def test_an_index_unit_that_ends_elsewhere_makes_the_start_walk_everything(tmp_path: Path) -> None:
    entries = build(tmp_path)
    record = record_of(tmp_path)
    index = tmp_path / "dledger-n0" / "index" / file_name(0)
    with index.open("r+b") as file:
        file.seek((record.scan_index - 1) * UNIT_BYTES)
        file.write(UNIT.pack(1, record.scan_pos - 60, 50, record.scan_index - 1, 1))
    store = reopen(tmp_path)
    assert store.recovered.entries_checked == 1000
    assert read_all(store) == entries
    store.close()


def test_a_start_takes_no_term_from_the_index_that_the_entries_do_not_have(tmp_path: Path) -> None:
    store = reopen(tmp_path)
    for term in range(2, 6):
        store.append(term, Magic.NORMAL, [b"x" * BODY_BYTES] * (20 * term))
        store.begin_sync(HardState(term, "n0")).run()
    store.note_committed(store.last_index)
    store.save_committed()
    runs, entries = store.term_runs(), read_all(store)
    store._files.close()
    assert record_of(tmp_path).scan_index > 100
    index = tmp_path / "dledger-n0" / "index" / file_name(0)
    whole = index.read_bytes()
    for entry in [*range(12), *range(35, 45), *range(98, 104)]:
        for bit in (0, 1, 2, 5):
            changed = bytearray(whole)
            changed[(entry + 1) * UNIT_BYTES - 1] ^= 1 << bit  # its term is the last field
            index.write_bytes(changed)
            store = reopen(tmp_path)
            assert store.term_runs() == runs, (entry, bit)
            assert read_all(store) == entries
            store._files.close()


@pytest.mark.parametrize("moved", [-ENTRY_BYTES, ENTRY_BYTES, -SEGMENT_BYTES])
def test_a_record_whose_place_is_not_that_of_its_entry_is_not_relied_on(
    tmp_path: Path, moved: int
) -> None:
    """Code of before there were checkpoints within segments, run in the folder, may leave one with
    the segment's position and the index of an entry within it.
    """
    entries = build(tmp_path)
    opened = HardStateFile.open(OsDisk(), str(tmp_path / "dledger-n0"))
    assert opened is not None
    file, record = opened
    file.write(record._replace(scan_pos=max(0, record.scan_pos + moved)), durable=True)
    file.close()
    store = reopen(tmp_path)
    assert store.recovered.entries_checked == 1000
    assert read_all(store) == entries
    store.close()


# --- damage -----------------------------------------------------------------------------------


def test_a_broken_entry_behind_the_checkpoint_is_refused_at_the_start(tmp_path: Path) -> None:
    entries = build(tmp_path)
    flip(data(tmp_path), entries[record_of(tmp_path).scan_index].pos + 60)
    with pytest.raises(LogCorrupt, match="recorded as committed"):
        reopen(tmp_path)


def test_a_broken_entry_before_the_checkpoint_is_found_by_its_reader(tmp_path: Path) -> None:
    entries = build(tmp_path)
    broken = entries[record_of(tmp_path).scan_index - 20]
    flip(data(tmp_path), broken.pos + 60)

    store = reopen(tmp_path)
    scrubber = Scrubber(store)
    while scrubber.step(990, 4096):
        continue
    assert scrubber.status.damage is not None
    assert f"entry {broken.index}" in scrubber.status.damage
    with pytest.raises(LogCorrupt, match=f"entry {broken.index}"):
        store.read(broken.index, broken.index, 1)
    store.close()

    problems = scan_folder(str(tmp_path)).verify()
    assert problems[0].kind is ProblemKind.BROKEN_RECORD
    assert problems[0].entry == broken.index


@pytest.mark.parametrize("field", [4, 8, 12, 16])
def test_a_broken_index_unit_before_the_checkpoint_is_damage_of_the_log(
    tmp_path: Path, field: int
) -> None:
    build(tmp_path)
    index = tmp_path / "dledger-n0" / "index" / file_name(0)
    flip(index, 500 * UNIT_BYTES + field)
    store = reopen(tmp_path)
    with pytest.raises(LogCorrupt, match="entry 500"):
        store.read(500, 500, 1)
    store._files.close()


def test_a_broken_header_before_the_checkpoint_makes_the_start_walk_everything(
    tmp_path: Path,
) -> None:
    entries = build(tmp_path)
    flip(data(tmp_path), entries[record_of(tmp_path).scan_index - 1].pos + 15)
    with pytest.raises(LogCorrupt, match="recorded as committed"):
        reopen(tmp_path)


# --- the places -------------------------------------------------------------------------------


def units(*positions: int) -> bytes:
    return b"".join(UNIT.pack(1, pos, 50, at, 1) for at, pos in enumerate(positions))


def test_places_are_where_segments_begin_and_at_steps_within_them() -> None:
    begins = WalkBegins(1000, 300, [WalkBegin(0, 0)])
    begins.note(units(0, 100, 290, 310, 400, 620, 1000, 1200), 0, 8, 1250)
    assert [begins.settle(index) for index in (2, 3, 4, 5, 6, 7)] == [
        WalkBegin(0, 0),
        WalkBegin(310, 3),
        WalkBegin(310, 3),
        WalkBegin(620, 5),
        WalkBegin(1000, 6),
        WalkBegin(1000, 6),
    ]


def test_a_place_that_was_cut_is_found_anew() -> None:
    begins = WalkBegins(1000, 300, [WalkBegin(0, 0)])
    begins.note(units(0, 310), 0, 2, 360)
    begins.cut_after(0)
    assert begins.settle(9) == WalkBegin(0, 0)
    begins.note(units(50, 350), 1, 2, 400)
    assert begins.settle(9) == WalkBegin(350, 2)


def test_places_before_the_logs_beginning_are_dropped() -> None:
    begins = WalkBegins(1000, 300, [WalkBegin(0, 0)])
    begins.note(units(0, 310, 1000, 1310), 0, 4, 1360)
    begins.drop_before(1000)
    assert begins.settle(-1) == WalkBegin(1000, 2)
    begins.restart(WalkBegin(5000, 70))
    begins.note(units(5000, 5310), 70, 2, 5360)
    assert begins.settle(71) == WalkBegin(5310, 71)


def test_checkpoints_are_some_bytes_apart() -> None:
    with pytest.raises(ConfigInvalid, match="checkpoint_bytes"):
        StoreConfig(checkpoint_bytes=0)
