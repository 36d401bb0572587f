"""A damaged entry costs itself, not all that stands around it, and is named with the reason."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")
pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")

from dledger.entry import Body
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.errors import EntriesLeftOut, LogDamaged
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.left_out import LeftOut
from dledger_spark.log.log_folder import open_log
from dledger_spark.log.readable_log import readable_parts
from dledger_spark.scan import arrow_batches
from dledger_spark.source import DledgerDataSource
from dledger_spark.tables.catalog import catalog
from dledger_spark.tables.table_home import TableHome
from remoting.message.record import MessageRecord
from tests.dledger_spark.batch_query import source_of, table_of
from tests.dledger_spark.broker_bodies import BrokerBodies

LogWriter = Callable[..., Path]
COUNT = 60
SEGMENT_BYTES = 4096
OFF = {"failOnDataLoss": "false"}


def bodies(count: int = COUNT) -> list[Body]:
    found = BrokerBodies()
    found.put_topic("t")
    for at in range(count - 1):
        found.message(MessageRecord(topic="t", body=b"%d" % at))
    return list(found.bodies)


def flip(folder: Path, place: int) -> None:
    """Change a byte of the log."""
    file = folder / "data" / f"{place // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    content = bytearray(file.read_bytes())
    content[place % SEGMENT_BYTES] ^= 4
    file.write_bytes(content)


def rows_of(folder: Path, **options: Any) -> list[dict[str, Any]]:
    found = arrow_batches(str(folder), **options)
    return [row for batch in found for row in batch.to_pylist()]


def place_of(folder: Path, index: int) -> int:
    return int(rows_of(folder)[index]["pos"])


def asked(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows that the source gives with failOnDataLoss=false."""
    return list(table_of(source_of(path=folder, table=table, **OFF)).to_pylist())


@pytest.mark.parametrize("has_index", [True, False])
def test_any_changed_byte_costs_few_entries_and_all_others_are_read_as_they_were(
    has_index: bool, write_log: LogWriter, tmp_path: Path
) -> None:
    whole = write_log(bodies())
    if not has_index:
        shutil.rmtree(whole / "index")
    rows = rows_of(whole)
    copy = tmp_path / "copy"
    first_bytes = {row["pos"] for row in rows}
    for place in range(5, rows[-1]["pos"] + rows[-1]["size"], 211):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        flip(copy, place)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EntriesLeftOut)
            found = rows_of(copy, fail_on_data_loss=False)
        log = FolderLog(open_log(str(copy)))
        left_out = readable_parts(log, range(COUNT), fail_on_data_loss=False).left_out
        lost = {at for each in left_out for at in range(each.first, each.last + 1)}
        assert found == [row for row in rows if row["index"] not in lost], place
        # Without an index, what is behind a broken header is found in the next file.
        begins_file = any(place - 48 < at <= place for at in first_bytes if at % SEGMENT_BYTES == 0)
        if has_index and not begins_file:
            assert len(lost) <= 2, (place, left_out)
        hit = [row["index"] for row in rows if row["pos"] <= place < row["pos"] + row["size"]]
        assert set(hit) <= lost or not hit, place


def test_the_source_leaves_out_a_damaged_entry_and_names_it(write_log: LogWriter) -> None:
    folder = write_log(bodies())
    entries = rows_of(folder)
    flip(folder, place_of(folder, 30) + 100)
    with pytest.warns(EntriesLeftOut, match=r"left-out entries .*30\.\.30: .*does not match"):
        assert asked(folder, "entries") == [row for row in entries if row["index"] != 30]
    with pytest.warns(EntriesLeftOut):
        messages = asked(folder, "messages")
    # The record behind the lost one has not the next offset of its queue, and is no refused one.
    assert [row["index"] for row in messages] == [at for at in range(1, COUNT) if at != 30]
    source = DledgerDataSource({"path": str(folder)})
    reader = source.reader(source.schema())
    with pytest.raises(LogDamaged) as caught:
        [list(reader.read(piece)) for piece in reader.partitions()]
    assert caught.value.entry == 30


def test_a_stream_goes_on_behind_a_damaged_entry(write_log: LogWriter) -> None:
    folder = write_log(bodies())
    flip(folder, place_of(folder, 30) + 100)
    source = DledgerDataSource({"path": str(folder), "table": "messages", **OFF})
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    with pytest.warns(EntriesLeftOut):
        pieces = reader.partitions(start, end)
    with pytest.warns(EntriesLeftOut):
        batches = [batch for piece in pieces for batch in reader.read(piece)]
    found = [at for batch in batches for at in batch.column("index").to_pylist()]
    assert found == [at for at in range(1, COUNT) if at != 30]


def tables_of(folder: Path, out: Path, *more: str) -> tuple[int, list[str]]:
    words = ["tables", "--path", str(folder), "--out", str(out), "--facts-only", *more]
    done = CliRunner().invoke(dledger_spark, words)
    return done.exit_code, done.stderr.splitlines()


def test_tables_have_all_but_a_damaged_entry_and_name_it_once(
    write_log: LogWriter, tmp_path: Path
) -> None:
    folder, out = write_log(bodies()), tmp_path / "out"
    pos = place_of(folder, 30)
    flip(folder, pos + 100)

    def table(name: str) -> list[dict[str, Any]]:
        [found] = [one for one in catalog(TableHome(str(out))) if one.name == name]
        rows: list[dict[str, Any]] = found.table.to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: row["index"])

    code, [line] = tables_of(folder, out)
    assert (code, "[DLEDGER_LOG_DAMAGED]" in line) == (1, True)
    assert [row["index"] for row in table("entries")] == list(range(30))
    why = "entry 30: the body does not match its CRC"
    expected = (0, [f"entries 30..30 are lost, and left out: {why}"])
    assert tables_of(folder, out, "--no-fail-on-data-loss") == expected
    assert tables_of(folder, out, "--no-fail-on-data-loss") == (0, [])
    write_log([b"more"])
    assert tables_of(folder, out) == (0, [])
    indexes = [at for at in range(COUNT + 1) if at != 30]
    assert [row["index"] for row in table("entries")] == indexes
    assert [row["index"] for row in table("messages")] == indexes[1:-1]
    [lost] = table("lost_entries")
    assert lost == {"raft_group": "g", "index": 30, "last": 30, "problem": why}


def test_damage_at_the_end_is_named_each_time_until_something_follows(
    write_log: LogWriter, tmp_path: Path
) -> None:
    folder, out = write_log(bodies()), tmp_path / "out"
    before = readable_parts(FolderLog(open_log(str(folder))), range(COUNT), fail_on_data_loss=False)
    assert before.parts == [range(COUNT)]
    flip(folder, place_of(folder, COUNT - 1) + 60)
    for _ in range(2):
        code, [line] = tables_of(folder, out, "--no-fail-on-data-loss")
        assert (code, f"entries {COUNT - 1}..{COUNT - 1} are lost" in line) == (0, True)
    log = FolderLog(open_log(str(folder)))
    assert log.unreadable(range(COUNT)) == [
        LeftOut(COUNT - 1, COUNT - 1, f"entry {COUNT - 1}: the body does not match its CRC")
    ]
