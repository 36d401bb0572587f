"""Consume queues save reading, and change no row."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.store.consume_queue import UNIT_BYTES
from dledger.store.store_config import StoreConfig
from dledger_spark.errors import LogDamaged
from dledger_spark.log import queue_files, queued_log
from dledger_spark.log.folder_log import FolderLog, FolderOrigin
from dledger_spark.log.log_folder import open_log
from dledger_spark.log.queued_entries import QueuedEntries
from dledger_spark.query import record_judge
from dledger_spark.query.queued_messages import KNOWN_COLUMNS
from dledger_spark.query.record_judge import RecordJudge
from dledger_spark.query.source_options import read_options
from dledger_spark.query.source_plan import EntryRange, read_piece
from dledger_spark.records.acceptance import Run
from dledger_spark.schema import MESSAGE_SCHEMA
from tests.dledger_spark.broker_script import (
    KINDS,
    ScriptedLog,
    Step,
    random_step,
    scripts,
)
from tests.dledger_spark.entry_writer import write_entries
from tests.dledger_spark.queue_writer import write_queues
from tests.examples import examples, seeds

SOME = ("raft_group", "index", "topic", "queue", "offset", "physical_offset")
ALL = tuple(MESSAGE_SCHEMA.names)
CONFIG = StoreConfig(1 << 16, 1024, max_body_bytes=1 << 14, spare_segments=0)
Rows = list[tuple[Any, ...]]


@contextmanager
def small_stretches(entries: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queued_log, "STRETCH_ENTRIES", entries)
        patch.setattr(queue_files, "_MAX_READ_UNITS", 4)
        yield


@contextmanager
def written(log: ScriptedLog, synced: int) -> Iterator[Path]:
    """The folder of a node with this log, and queues beside it."""
    with TemporaryDirectory() as base:
        folder = write_entries(Path(base), log.entries, CONFIG)
        write_queues(Path(base), log.entries, synced).close()
        yield folder


def judged(folder: Path, pieces: Sequence[range]) -> tuple[list[list[Run]], list[bytes]]:
    """What a planner finds in pieces of a log, and the state behind each."""
    record_judge._remembered.clear()
    queue_files._listed.cache_clear()
    judge = RecordJudge(fail_on_data_loss=True)
    log = FolderLog(open_log(str(folder)))
    runs, states = [], []
    for piece in pieces:
        runs.append(judge.refused(log, piece, pieces[0].start))
        states.append(judge._states["g"][1])
    return runs, states


def rows(
    folder: Path,
    piece: range,
    refused: list[Run],
    columns: Sequence[str],
    topics: frozenset[str] | None = None,
    *,
    checksums: bool = False,
) -> Rows:
    """The messages that a task reads, in the log's order."""
    options = read_options(
        {"path": str(folder), "table": "messages", "checksums": str(checksums).lower()}
    )
    named = list(dict.fromkeys((*columns, "index", "physical_offset")))
    partition = EntryRange(FolderOrigin(str(folder)), piece.start, piece.stop - 1, refused)
    batches = list(read_piece(partition, options, named, topics))
    found = pa.Table.from_batches(batches).to_pylist() if batches else []
    found.sort(key=lambda row: (row["index"], row["physical_offset"]))
    return [tuple(map(repr, row.values())) for row in found]


def without_queues(folder: Path) -> None:
    shutil.rmtree(folder.parent / "consumequeue")


@contextmanager
def compared(folder: Path, pieces: Sequence[range]) -> Iterator[None]:
    """Everything is the same when the queues are gone, which they are at the end."""

    def found() -> tuple[Any, ...]:
        runs, states = judged(folder, pieces)
        each = list(zip(pieces, runs, strict=True))
        # Where runs of refused records are cut depends on what is read at once.
        return (
            states,
            [rows(folder, piece, refused, ALL, checksums=True) for piece, refused in each],
            [rows(folder, piece, refused, SOME) for piece, refused in each],
            [rows(folder, piece, refused, ("queue",), frozenset("A")) for piece, refused in each],
            [
                rows(folder, piece, refused, ALL, topics, checksums=True)
                for piece, refused in each
                for topics in (frozenset("A"), frozenset(("B", "%DLQ%g")), frozenset("C"))
            ],
        )

    with_queues = found()
    yield
    without_queues(folder)
    for one, other in zip(with_queues, found(), strict=True):
        assert one == other


@st.composite
def cuts(draw: st.DrawFn, entries: int) -> list[range]:
    """One or several adjacent pieces of a log."""
    borders = draw(st.sets(st.integers(0, entries), min_size=2, max_size=4))
    ends = sorted(borders)
    return [range(first, stop) for first, stop in pairwise(ends)]


@settings(max_examples=examples(50))
@given(scripts, st.integers(1, 9), st.data())
def test_queues_change_neither_what_is_refused_nor_any_row(
    script: list[Step], stretch: int, data: st.DataObject
) -> None:
    log = ScriptedLog()
    log.run(script)
    synced = data.draw(st.integers(0, len(log.entries)))
    pieces = data.draw(cuts(len(log.entries)))
    with small_stretches(stretch), written(log, synced) as folder, compared(folder, pieces):
        pass


def busy_log(seed: int, steps: int, kinds: Sequence[str] = KINDS) -> ScriptedLog:
    chance = random.Random(seed)
    log = ScriptedLog()
    log.run([random_step(chance)._replace(kind=chance.choice(kinds)) for _ in range(steps)])
    return log


SENDS = ("send", "send", "sends", "offsets")
WITH_TOPICS = (*SENDS, *SENDS, "send to both", "retry", "deliver", "delay", "delete", "put", "put")


@pytest.mark.parametrize("seed", seeds(12, 1))
def test_queues_change_no_row_of_a_log_whose_topics_come_and_go(seed: int) -> None:
    log = busy_log(seed, 150, WITH_TOPICS)
    every = len(log.entries)
    pieces = [range(every // 3), range(every // 3, every)]
    with small_stretches(1 + seed), written(log, every - 20) as folder, compared(folder, pieces):
        pass


def units_of(queues: Path) -> list[tuple[Path, int]]:
    """The units in all files: the file, and where in it."""
    return [
        (path, at)
        for path in sorted(queues.glob("[!.]*/*/*"))
        for at in range(0, path.stat().st_size, UNIT_BYTES)
    ]


def overwrite(path: Path, at: int, content: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[at : at + len(content)] = content
    path.write_bytes(whole)


@pytest.mark.parametrize("seed", seeds(24, 3))
def test_wrong_places_and_sizes_in_queues_change_no_row(seed: int) -> None:
    log = busy_log(seed, 60, WITH_TOPICS)
    chance = random.Random(seed)
    borders = [entry.pos for entry in log.entries]
    with small_stretches(8), written(log, 50) as folder:
        units = units_of(folder.parent / "consumequeue")
        for path, at in chance.sample(units, min(3, len(units))):
            place, size = struct.unpack_from(">qi", path.read_bytes(), at)
            places = (place - 1, place + 1, chance.choice(borders), 0, -1, 2**63 - 1, (1 << 16) - 9)
            sizes = (size - 1, size + 1, 0, -size, 2**31 - 1)
            if chance.random() < 0.7:
                overwrite(path, at, struct.pack(">q", chance.choice(places)))
            else:
                overwrite(path, at + 8, struct.pack(">i", chance.choice(sizes)))
        with compared(folder, [range(len(log.entries))]):
            pass


def test_records_that_would_overlap_are_read_from_the_log() -> None:
    log = ScriptedLog()
    log.run([Step("sends"), Step("send")])
    with written(log, len(log.entries)) as folder:
        path = folder.parent / "consumequeue" / "A" / "0" / ("0" * 20)
        place, _size = struct.unpack_from(">qi", path.read_bytes(), UNIT_BYTES)
        overwrite(path, UNIT_BYTES, struct.pack(">q", place - 1))
        with compared(folder, [range(len(log.entries))]):
            assert told(folder) == []


def test_a_record_without_bytes_is_none() -> None:
    log = ScriptedLog()
    log.run([Step("send", 1), Step("send")])
    with written(log, len(log.entries)) as folder:
        of_a, of_b = (folder.parent / "consumequeue" / name / "0" / ("0" * 20) for name in "AB")
        place, _size = struct.unpack_from(">qi", of_b.read_bytes())
        of_a.write_bytes(struct.pack(">qiq", place, 0, 0) + of_a.read_bytes())
        with compared(folder, [range(len(log.entries))]):
            assert told(folder) == []


def cut_short(queues: Path) -> None:
    for path in queues.glob("A/*/*"):
        path.write_bytes(path.read_bytes()[:-7])


def lose_a_file(queues: Path) -> None:
    sorted(queues.glob("A/0/*"))[0].unlink()


def lose_a_topic(queues: Path) -> None:
    shutil.rmtree(queues / "A")


def add_foreign_names(queues: Path) -> None:
    (queues / "notes.txt").write_text("x")
    (queues / "A" / "00").mkdir()
    (queues / "A" / "9999999999").mkdir()
    (queues / "A" / "0" / "x").write_text("x")
    (queues / "A" / "0" / ("9" * 20)).write_bytes(bytes(40))


def bring_back_a_deleted_topic(queues: Path) -> None:
    shutil.copytree(queues / "A", queues / "B", dirs_exist_ok=True)


@pytest.mark.parametrize(
    "damage",
    [cut_short, lose_a_file, lose_a_topic, add_foreign_names, bring_back_a_deleted_topic],
)
def test_queues_that_lack_something_or_have_too_much_change_no_row(damage: Any) -> None:
    log = busy_log(3, 80, (*SENDS, "delete", "put"))
    with small_stretches(8), written(log, 70) as folder:
        damage(folder.parent / "consumequeue")
        with compared(folder, [range(len(log.entries))]):
            pass


def told(folder: Path) -> list[QueuedEntries]:
    queue_files._listed.cache_clear()
    log = FolderLog(open_log(str(folder)))
    return list(log.queued(log.resolve(None, None)))


def test_queues_without_a_valid_mark_are_not_used() -> None:
    log = busy_log(1, 40, SENDS)
    with written(log, len(log.entries)) as folder:
        assert sum(len(one.entries) for one in told(folder)) == len(log.entries)
        mark = folder.parent / "consumequeue" / ".synced"
        right = mark.read_bytes()
        for wrong in (b"", right[:8], right[:-1] + bytes((right[-1] ^ 1,)), b"\xff" * 12):
            mark.write_bytes(wrong)
            assert told(folder) == []


def test_what_is_left_over_behind_the_end_of_a_queue_is_passed_over() -> None:
    log = busy_log(1, 40, SENDS)
    with small_stretches(8), written(log, len(log.entries)) as folder:
        for last in (folder.parent / "consumequeue").glob("[!.]*/*"):
            path = max(last.iterdir())
            path.write_bytes(path.read_bytes() + path.read_bytes()[-UNIT_BYTES:] * 2)
        assert sum(len(one.entries) for one in told(folder)) == len(log.entries)


def test_queues_of_a_topic_under_another_name_refuse_nothing() -> None:
    log = busy_log(1, 60, SENDS)
    every = [range(len(log.entries))]
    with small_stretches(8), written(log, len(log.entries)) as folder:
        queues = folder.parent / "consumequeue"
        (queues / "A").rename(queues / "C")
        found = judged(folder, every)
        without_queues(folder)
        assert found == judged(folder, every) != ([[]], [b""])


def test_queues_are_used_up_to_the_entry_that_the_mark_names() -> None:
    log = busy_log(1, 40, SENDS)
    with small_stretches(8), written(log, 30) as folder:
        assert [one.entries for one in told(folder)] == [
            range(8),
            range(8, 16),
            range(16, 24),
            range(24, 30),
        ]


def test_a_log_with_very_many_queues_is_read_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    log = busy_log(1, 40, SENDS)
    with written(log, len(log.entries)) as folder:
        monkeypatch.setattr(queue_files, "MAX_QUEUES", 2)
        assert told(folder) == []


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """The ranges of entries that are read as a whole."""
    found: list[range] = []
    batches = FolderLog.batches

    def note(log: FolderLog, entries: range, **others: Any) -> Iterator[pa.RecordBatch]:
        if entries:
            found.append(entries)
        return batches(log, entries, **others)

    monkeypatch.setattr(FolderLog, "batches", note)
    return found


def test_a_planner_reads_only_what_queues_do_not_tell(reads: list[range]) -> None:
    log = busy_log(1, 60, SENDS)
    first = next(number for number, entry in enumerate(log.entries) if b"DLB" not in entry.body)
    with small_stretches(first), written(log, 40) as folder:
        judged(folder, [range(len(log.entries))])
    # Topics are created at the beginning, and the queues are not known to be whole at the end.
    assert reads == [range(first), range(40, len(log.entries))]


def test_known_columns_without_sums_are_read_from_queues_alone(reads: list[range]) -> None:
    log = busy_log(1, 60, SENDS)
    every = range(len(log.entries))
    with written(log, len(log.entries)) as folder:
        assert KNOWN_COLUMNS.issuperset(SOME)
        found = rows(folder, every, [], SOME)
        assert reads == []
        assert rows(folder, every, [], (*SOME, "body_size"))
        assert reads == [every]
        assert found == rows(folder, every, [], SOME, checksums=True)
        assert reads == [every, every]


def test_a_rare_topic_is_read_alone(reads: list[range]) -> None:
    log = ScriptedLog()
    log.run([Step("send"), Step("retry"), Step("send"), Step("retry"), *[Step("send")] * 200])
    every = range(len(log.entries))
    with written(log, len(log.entries)) as folder:
        some = rows(folder, every, [], ALL, frozenset({"%RETRY%g"}), checksums=True)
        assert len(some) == 2
        assert reads == []
        assert rows(folder, every, [], ALL, frozenset("AB"))
        assert reads == [every]


def test_damage_in_an_entry_that_is_read_alone_is_an_error() -> None:
    log = busy_log(1, 200, ("send",))
    log.run([Step("retry")])
    last = log.entries[-1]
    with written(log, len(log.entries)) as folder:
        path = max((folder / "data").iterdir())
        content = bytearray(path.read_bytes())
        content[last.body_pos + len(last.body) - 1 - int(path.name)] ^= 1
        path.write_bytes(content)
        every = range(len(log.entries))
        with pytest.raises(LogDamaged, match=f"entry {last.index}: the body does not match"):
            rows(folder, every, [], ALL, frozenset({"%RETRY%g"}), checksums=True)
        assert rows(folder, every, [], ALL, frozenset("A"), checksums=False)
