from __future__ import annotations

import csv
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dledger.core.hard_state import HardState
from dledger.entry import LARGEST_BODY_BYTES, encode
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.scan import scan_folder
from dledger.store.store_config import StoreConfig
from dledger_spark.errors import (
    CommittedUnknown,
    DataLost,
    DledgerSparkError,
    EntriesLeftOut,
    LogDamaged,
    LogFolderInvalid,
    OptionInvalid,
    RangeUnavailable,
)
from dledger_spark.log.entry_positions import positions_by_index
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import open_log
from dledger_spark.log.log_range import end_of_log
from dledger_spark.scan import arrow_batches
from tests.examples import examples

LogWriter = Callable[..., Path]
GOLDEN = Path(__file__).parents[1] / "dledger" / "data" / "golden"


def table(path: Path, *arguments: Any, **options: Any) -> pa.Table:
    return pa.Table.from_batches(list(arrow_batches(str(path), *arguments, **options)))


def indexes(path: Path, *arguments: Any, **options: Any) -> list[int]:
    found: list[int] = []
    for batch in arrow_batches(str(path), *arguments, **options):
        found += batch.column("index").to_pylist()
    return found


def some_bodies(count: int) -> list[bytes]:
    return [bytes([number % 251]) * (number * 37 % 300) for number in range(count)]


def patch(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


@settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=40),
    batch_bytes=st.sampled_from([1, 300, 10_000]),
)
def test_every_entry_of_a_written_log_comes_back(
    sizes: list[int], batch_bytes: int, tmp_path: Path, write_log: LogWriter
) -> None:
    bodies = [bytes([at % 251]) * size for at, size in enumerate(sizes)]
    shutil.rmtree(tmp_path / "log", ignore_errors=True)
    folder = write_log(bodies, segment_bytes=1024)
    found = table(folder, batch_bytes=batch_bytes).to_pylist()
    headers = [place.header for place in scan_folder(str(folder)).entries()]
    assert [row["body"] for row in found] == bodies
    assert [
        (row["magic"], row["size"], row["index"], row["term"], row["pos"], row["channel"])
        for row in found
    ] == [(h.magic, h.size, h.index, h.term, h.pos, h.channel) for h in headers]
    assert [(row["chain_crc"], row["body_crc"]) for row in found] == [
        (h.chain_crc, h.body_crc) for h in headers
    ]


def test_the_largest_entry_comes_back(write_log: LogWriter) -> None:
    path = write_log([b"a", bytes(LARGEST_BODY_BYTES)], segment_bytes=LARGEST_BODY_BYTES + 56)
    assert [len(one) for one in table(path)["body"].to_pylist()] == [1, LARGEST_BODY_BYTES]


def test_ranges_are_cut_exactly_at_any_place(write_log: LogWriter) -> None:
    folder = write_log(some_bodies(60), segment_bytes=1024)
    for first in range(0, 60, 7):
        for last in range(first, 60, 5):
            assert indexes(folder, first, last) == list(range(first, last + 1))


@pytest.mark.filterwarnings("ignore:unrecorded entries")
def test_only_committed_entries_are_read(write_log: LogWriter) -> None:
    folder = write_log(some_bodies(30), segment_bytes=1024, committed=17)
    assert indexes(folder) == list(range(18))
    assert indexes(folder, None, "end") == list(range(30))
    with pytest.raises(RangeUnavailable, match="committed is 17"):
        indexes(folder, 0, 18)


@pytest.mark.filterwarnings("ignore:unrecorded entries")
def test_a_log_with_nothing_committed_is_an_empty_table(write_log: LogWriter) -> None:
    assert indexes(write_log([b"a", b"b"], committed=-1)) == []
    assert indexes(write_log([], base=Path(str(write_log([b"a"])) + "-empty"))) == []


def test_the_base_folder_of_one_node_is_found(write_log: LogWriter) -> None:
    folder = write_log([b"a"])
    assert indexes(folder.parent) == [0]


def test_a_base_folder_of_several_nodes_is_refused_by_name(write_log: LogWriter) -> None:
    folder = write_log([b"a"])
    shutil.copytree(folder, folder.parent / "dledger-n1")
    with pytest.raises(LogFolderInvalid, match=r"dledger-n0.*dledger-n1"):
        open_log(str(folder.parent))


@pytest.mark.parametrize("kind", ["missing", "file", "empty", "other", "empty data"])
def test_what_is_no_log_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    if kind == "file":
        path.write_bytes(b"")
    elif kind != "missing":
        path.mkdir()
    if kind == "other":
        (path / "notes.txt").write_text("hello")
    if kind == "empty data":
        (path / "data").mkdir()
    with pytest.raises(LogFolderInvalid) as caught:
        open_log(str(path))
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("damage", ["gone", "zeroed", "behind", "nonsense"])
def test_the_data_is_read_whatever_the_index_says(damage: str, write_log: LogWriter) -> None:
    bodies = some_bodies(100)
    folder = write_log(bodies, segment_bytes=2048)
    files = sorted((folder / "index").iterdir())
    if damage == "gone":
        shutil.rmtree(folder / "index")
    elif damage == "zeroed":
        for file in files:
            file.write_bytes(bytes(1024))
    elif damage == "behind":
        files[-1].unlink()
        patch(files[-2], 512, bytes(512))
    else:
        patch(files[1], 32 * 3 + 4, (12345).to_bytes(8, "big"))
    assert table(folder)["body"].to_pylist() == bodies
    assert indexes(folder, 50, 70) == list(range(50, 71))


def test_a_late_index_has_all_that_is_recorded_as_committed(tmp_path: Path) -> None:
    store = open_store(OsDisk(), str(tmp_path), StoreConfig(spare_segments=0), "g", "n0")
    for index, body in enumerate(some_bodies(20)):
        store.append(1, 1, [body])
        store.begin_sync(HardState(1) if index == 0 else None).run()
        if index == 9:
            store.note_committed(9)
            store.save_committed(in_next_sync=False)
    folder = tmp_path / "dledger-n0"
    log = open_log(str(folder))
    [segment] = log.segments
    [by_index] = positions_by_index(log, segment, 0, 19)
    assert len(by_index) == 10 + 1
    assert indexes(folder, 0, 9) == list(range(10))
    assert indexes(folder, None, "end") == list(range(20))
    assert indexes(folder, 15, "end") == list(range(15, 20))
    everything = range(20)
    assert FolderLog(log).stop_within(everything, 1 << 20) == 20
    assert FolderLog(log).stop_within(everything, int(by_index[-1]) + 500) in everything[11:]
    store.close()


def test_an_index_that_points_at_another_entry_is_not_believed(write_log: LogWriter) -> None:
    folder = write_log([b"same"] * 40)
    unit = (folder / "index" / f"{0:020d}").read_bytes()[32 * 4 : 32 * 5]
    moved = unit[:4] + (52 * 6).to_bytes(8, "big") + unit[12:]
    patch(folder / "index" / f"{0:020d}", 32 * 4, moved)
    assert indexes(folder, 4, 4) == [4]
    assert table(folder, 4, 4)["pos"].to_pylist() == [52 * 4]


def test_a_broken_body_is_told_with_its_place(write_log: LogWriter) -> None:
    folder = write_log(some_bodies(40), segment_bytes=1024)
    row = table(folder).to_pylist()[20]
    start = row["pos"] - row["pos"] % 1024
    segment = folder / "data" / f"{start:020d}"
    patch(segment, row["pos"] - start + 48, b"\xff\xfe")
    with pytest.raises(LogDamaged, match="entry 20: the body does not match") as caught:
        indexes(folder)
    assert caught.value.path == str(segment)
    assert caught.value.offset == row["pos"] - start
    assert "\n" not in str(caught.value)
    assert indexes(folder, 0, 19) == list(range(20))
    assert indexes(folder, checksums=False) == list(range(40))


@pytest.mark.parametrize("field", range(0, 48, 4))
def test_a_broken_header_never_gives_a_wrong_entry(field: int, write_log: LogWriter) -> None:
    folder = write_log(some_bodies(20), segment_bytes=65_536)
    row = table(folder).to_pylist()[7]
    patch(folder / "data" / f"{0:020d}", row["pos"] + field, b"\x7f\xff\xff\xff")
    seen: list[int] = []
    with pytest.raises(LogDamaged):
        seen.extend(
            batch.column("index")[0].as_py() for batch in arrow_batches(str(folder), batch_bytes=1)
        )
    assert seen == list(range(7))
    with pytest.raises(LogDamaged):
        indexes(folder, 7, 7)


def test_a_term_that_falls_is_damage(write_log: LogWriter) -> None:
    folder = write_log([b"a"] * 3, term=5)
    raw, _chain = encode(1, 1, 4, 49, 0, b"a")
    patch(folder / "data" / f"{0:020d}", 49, raw)
    with pytest.raises(LogDamaged):
        indexes(folder)


def test_a_truncated_file_is_an_error_and_not_a_crash(write_log: LogWriter) -> None:
    folder = write_log(some_bodies(60), segment_bytes=1024)
    files = sorted((folder / "data").iterdir())
    for cut in (0, 40, 500):
        for file in (files[0], files[3], files[-2]):
            whole = file.read_bytes()
            file.write_bytes(whole[:cut])
            with pytest.raises(DledgerSparkError) as caught:
                indexes(folder)
            assert "\n" not in str(caught.value)
            file.write_bytes(whole)
    files[3].write_bytes(files[3].read_bytes()[:1023])  # nothing was in the byte that is gone
    assert indexes(folder) == list(range(60))


def test_a_file_cut_short_after_the_plan_is_an_error(write_log: LogWriter) -> None:
    folder = write_log(some_bodies(60), segment_bytes=65_536)
    batches = arrow_batches(str(folder), batch_bytes=500)
    next(batches)
    (folder / "data" / f"{0:020d}").write_bytes(b"")
    with pytest.raises(LogDamaged, match="the file"):
        list(batches)


def holding(folder: Path, start: int) -> list[int]:
    """The entries that lie in the file that begins at `start`; segments have 1024 bytes."""
    rows = table(folder, columns=["index", "pos"]).to_pylist()
    return [row["index"] for row in rows if start <= row["pos"] < start + 1024]


@pytest.mark.parametrize("damage", ["removed", "overwritten"])
@pytest.mark.parametrize("start", [0, 2048])
def test_entries_that_no_file_holds_are_an_error_that_can_be_passed_over(
    start: int, damage: str, write_log: LogWriter
) -> None:
    folder = write_log(some_bodies(60), segment_bytes=1024)
    lost = holding(folder, start)
    file = folder / "data" / f"{start:020d}"
    if damage == "removed":
        file.unlink()
    else:
        patch(file, 0, b"\xff" * 48)
    with pytest.raises(DataLost, match=f"{start:020d}") as caught:
        indexes(folder)
    assert (caught.value.first, caught.value.last) == (lost[0], lost[-1])
    assert "\n" not in str(caught.value)
    kept = [index for index in range(60) if index not in lost]
    assert indexes(folder, fail_on_data_loss=False) == kept


@pytest.mark.parametrize("damage", ["removed", "overwritten", "cut short", "too long"])
def test_a_damaged_file_blocks_no_range_that_does_not_touch_it(
    damage: str, write_log: LogWriter
) -> None:
    folder = write_log(some_bodies(60), segment_bytes=1024)
    lost = holding(folder, 2048)
    file = folder / "data" / f"{2048:020d}"
    if damage == "removed":
        file.unlink()
    elif damage == "overwritten":
        patch(file, 0, b"\xff" * 48)
    elif damage == "cut short":
        file.write_bytes(file.read_bytes()[:100])
    else:
        file.write_bytes(file.read_bytes() + bytes(5))
    assert indexes(folder, 0, lost[0] - 1) == list(range(lost[0]))
    assert indexes(folder, lost[-1] + 1) == list(range(lost[-1] + 1, 60))
    if damage == "too long":
        assert indexes(folder) == list(range(60))
    else:
        with pytest.raises(DledgerSparkError, match=f"{2048:020d}"):
            indexes(folder, lost[-1])


def test_a_log_whose_end_is_lost_is_read_up_to_there_when_that_is_allowed(
    write_log: LogWriter,
) -> None:
    folder = write_log(some_bodies(60), segment_bytes=1024)
    last_file = max((folder / "data").iterdir())
    lost = holding(folder, int(last_file.name))
    last_file.unlink()
    with pytest.raises(DledgerSparkError, match=f"entry {lost[0]}"):
        indexes(folder)
    with pytest.warns(EntriesLeftOut, match=f"{lost[0]}\\.\\.59: "):
        assert indexes(folder, fail_on_data_loss=False) == list(range(lost[0]))


def test_a_front_that_java_removed_moves_the_beginning(write_log: LogWriter) -> None:
    folder = write_log(some_bodies(60), segment_bytes=1024)
    lost = holding(folder, 0)
    (folder / "data" / f"{0:020d}").unlink()
    (folder / "hard-state").unlink()
    log = open_log(str(folder))
    assert log.first_index == lost[-1] + 1
    assert indexes(folder, None, "end") == list(range(log.first_index, 60))
    with pytest.raises(RangeUnavailable, match=f"first entry kept is {log.first_index}"):
        indexes(folder, 0, 59)


def test_a_hard_state_without_a_whole_record_is_damage(write_log: LogWriter) -> None:
    folder = write_log([b"a"])
    (folder / "hard-state").write_bytes(bytes(5000))
    with pytest.raises(LogDamaged, match="hard-state"):
        indexes(folder)


def test_the_reader_leaves_no_trace(write_log: LogWriter) -> None:
    folder = write_log(some_bodies(60), segment_bytes=1024)

    def state() -> list[tuple[str, int, str]]:
        return [
            (str(file), file.stat().st_mtime_ns, hashlib.sha256(file.read_bytes()).hexdigest())
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        ]

    before = state()
    indexes(folder)
    assert state() == before


@pytest.mark.parametrize(
    "entries_tsv",
    sorted(GOLDEN.rglob("entries.tsv")),
    ids=lambda path: str(path.parent.relative_to(GOLDEN)),
)
def test_logs_of_java_come_back_as_java_read_them(entries_tsv: Path) -> None:
    with entries_tsv.open(newline="") as file:
        expected = list(csv.DictReader(file, delimiter="\t"))
    folder = entries_tsv.parent
    with pytest.raises(CommittedUnknown):
        indexes(folder)
    found = table(folder, None, "end").to_pylist()

    def signed(number: int) -> int:
        return number - (1 << 32) if number >= 1 << 31 else number

    assert [
        {
            "index": str(row["index"]),
            "term": str(row["term"]),
            "pos": str(row["pos"]),
            "size": str(row["size"]),
            "channel": str(row["channel"]),
            "chainCrc": str(signed(row["chain_crc"])),
            "bodyCrc": str(signed(row["body_crc"])),
            "bodySize": str(len(row["body"])),
            "sha256": hashlib.sha256(row["body"]).hexdigest(),
            "magic": str(row["magic"]),
        }
        for row in found
    ] == expected
    assert indexes(folder, None, int(expected[-1]["index"])) == [row["index"] for row in found]


def test_the_end_of_a_java_log_can_be_named_but_not_passed() -> None:
    folder = GOLDEN / "tiny" / "n0"
    assert end_of_log(open_log(str(folder))) == 79
    with pytest.raises(RangeUnavailable, match="the log ends with 79"):
        indexes(folder, 0, 80)


@pytest.mark.parametrize(("first", "last"), [("x", None), (-1, None), (None, "-5"), (None, "last")])
def test_an_index_that_is_no_number_is_refused(
    first: object, last: object, write_log: LogWriter
) -> None:
    folder = write_log([b"a"])
    with pytest.raises(OptionInvalid):
        indexes(folder, first, last)


def test_unknown_tables_and_columns_are_refused(write_log: LogWriter) -> None:
    folder = write_log([b"a"])
    with pytest.raises(OptionInvalid, match="entries, messages"):
        indexes(folder, table="rows")
    with pytest.raises(OptionInvalid, match="topic"):
        indexes(folder, columns=["index", "topic"])


def test_columns_come_in_the_order_asked_for(write_log: LogWriter) -> None:
    folder = write_log([b"abc", b""])
    found = table(folder, columns=["body", "index"])
    assert found.column_names == ["body", "index"]
    assert found.to_pylist() == [{"body": b"abc", "index": 0}, {"body": b"", "index": 1}]


def test_batches_stay_below_the_bytes_asked_for(write_log: LogWriter) -> None:
    folder = write_log([*some_bodies(60), bytes(3000)], segment_bytes=8192)
    sizes = [
        pa.compute.sum(b["size"]).as_py() for b in arrow_batches(str(folder), batch_bytes=1000)
    ]
    assert max(sizes[:-1]) <= 1000
    assert sizes[-1] == 3048


@settings(
    deadline=None,
    max_examples=examples(50),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    first=st.integers(0, 59),
    length=st.integers(0, 60),
    piece=st.integers(1, 8000),
    pieces=st.integers(1, 10),
)
def test_pieces_cover_the_range_without_gap_or_overlap(
    first: int, length: int, piece: int, pieces: int, write_log: LogWriter, tmp_path: Path
) -> None:
    folder = tmp_path / "log" / "dledger-n0"
    if not folder.exists():
        write_log(some_bodies(60), segment_bytes=1024)
    log = open_log(str(folder))
    entries = range(first, min(60, first + length))
    shared = FolderLog(log).share_out(entries, piece, pieces)
    assert [index for part in shared for index in part] == list(entries)
    assert all(len(part) for part in shared)


def test_pieces_are_about_equally_large(write_log: LogWriter) -> None:
    folder = write_log([bytes(200)] * 400, segment_bytes=8192)
    log = FolderLog(open_log(str(folder)))
    shared = log.share_out(log.resolve(None, None), 10_000, 1)
    assert len(shared) == pytest.approx(400 * 248 / 10_000, abs=1)
    assert max(map(len, shared)) - min(map(len, shared)) <= 4


def test_a_log_that_began_at_java_is_read_through(write_log: LogWriter, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "main" / "n0", tmp_path / "java")
    folder = write_log([b"ours", b""], segment_bytes=65_536, term=6, base=tmp_path / "java")
    found = table(folder).to_pylist()
    assert [row["index"] for row in found] == list(range(300))
    assert [row["chain_crc"] == 0 for row in found] == [True] * 298 + [False] * 2
    # Java's callers may put anything into the sums: below the mark they are not looked at.
    patch(folder / "data" / f"{0:020d}", 36, b"\x01\x02\x03\x04\x05\x06\x07\x08")
    assert table(folder).num_rows == 300
    patch(
        folder / "data" / f"{found[298]['pos'] // 65536 * 65536:020d}",
        found[298]["pos"] % 65536 + 36,
        b"\x01\x02\x03\x04",
    )
    with pytest.raises(LogDamaged, match="entry 298: the header"):
        indexes(folder)


def test_the_schema_is_the_same_for_every_batch(write_log: LogWriter) -> None:
    folder = write_log(some_bodies(60), segment_bytes=1024)
    schemas = {str(batch.schema) for batch in arrow_batches(str(folder), batch_bytes=1)}
    assert len(schemas) == 1


@pytest.mark.filterwarnings("ignore:unrecorded entries")
def test_a_log_is_read_while_its_node_appends_to_it(tmp_path: Path) -> None:
    config = StoreConfig(1024, 1024, 900, 0)
    store = open_store(OsDisk(), str(tmp_path), config, "g", "n0")
    try:
        for done in range(0, 60, 10):
            store.append(1, 1, some_bodies(10))
            store.note_committed(done + 4)
            store.begin_sync(HardState(1, None, done + 4)).run()
            assert indexes(tmp_path) == list(range(done + 5))
    finally:
        store.close()
