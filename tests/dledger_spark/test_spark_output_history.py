"""Which logs may be replayed into an output that holds entries already."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dledger.entry import Body
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.store_config import StoreConfig
from dledger_spark.errors import DataLost, OutputInvalid
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import open_log
from dledger_spark.replay.replay import Plan, plan_replay, write_piece
from dledger_spark.replay.table_folder import published, replay_run

LogWriter = Callable[..., Path]
GOLDEN = Path(__file__).parents[1] / "dledger" / "data" / "golden"
ONE_FILE = 1 << 20


def replay(
    folder: Path,
    out: Path,
    first: int | None = None,
    last: int | str | None = None,
    *,
    file_bytes: int = ONE_FILE,
    fail_on_data_loss: bool = True,
) -> Plan:
    """A replay without Spark."""
    log = FolderLog(open_log(str(folder)))
    with replay_run(str(out)) as run:
        plan = plan_replay(
            log,
            log.resolve(first, last),
            str(out),
            file_bytes,
            goes_on=first is None,
            fail_on_data_loss=fail_on_data_loss,
        )
        for piece in plan.pieces:
            write_piece(log, str(out), run, piece)
    return plan


def indexes(out: Path) -> list[int]:
    files = published(str(out), "entries")
    return [at for file in files for at in pq.read_table(file.path)["index"].to_pylist()]


def numbers(count: int, word: str = "entry") -> Sequence[Body]:
    return [f"{word} {at:05}".encode() * 9 for at in range(count)]


def cut(folder: Path, first_index: int) -> int:
    """Let retention remove what lies before the file of `first_index`; the first entry left."""
    config = StoreConfig(4096, 1024, max_body_bytes=4040, spare_segments=0)
    store = open_store(OsDisk(), str(folder.parent), config, "g", "n0")
    try:
        store.discard_before(first_index)
        store.begin_sync(None).run()
        return store.first_index
    finally:
        store.close()


@pytest.mark.parametrize("count", [0, 1, 20, 49])
def test_a_group_made_again_with_fewer_entries_does_not_count_as_replayed(
    count: int, write_log: LogWriter, tmp_path: Path
) -> None:
    folder, out = write_log(numbers(50)), tmp_path / "out"
    replay(folder, out)
    shutil.rmtree(folder)
    write_log(numbers(count, "other"))
    with pytest.raises(OutputInvalid, match="use a new folder") as caught:
        replay(folder, out)
    assert "\n" not in str(caught.value)


def test_a_node_that_lags_behind_has_nothing_to_add(write_log: LogWriter, tmp_path: Path) -> None:
    out = tmp_path / "out"
    replay(write_log(numbers(50)), out)
    behind = write_log(numbers(20), base=tmp_path / "behind")
    assert replay(behind, out) == Plan([], 20, [])


def test_groups_have_files_of_their_own_in_an_output(write_log: LogWriter, tmp_path: Path) -> None:
    out = tmp_path / "out"
    replay(write_log(numbers(50)), out)
    other = write_log(numbers(60), base=tmp_path / "other", group="h 1")
    replay(other, out)
    assert replay(other, out).pieces == []
    found = published(str(out), "entries")
    assert [(file.group, len(file.entries)) for file in found] == [("g", 50), ("h 1", 60)]
    assert Path(found[1].path).name == f"{0:020d}-{59:020d}.h%201.parquet"
    rows = pq.read_table(out / "entries").group_by("raft_group").aggregate([("index", "max")])
    assert sorted(map(tuple, zip(*rows.to_pydict().values(), strict=True))) == [
        ("g", 49),
        ("h 1", 59),
    ]
    Path(found[1].path).rename(found[1].path.replace("h%201", "g").replace("59.", "49."))
    with pytest.raises(OutputInvalid, match=r"has a name of group 'g', and holds group 'h 1'"):
        replay(write_log(numbers(70)), out)


def test_a_range_that_the_output_lacks_may_not_come_from_another_log(
    write_log: LogWriter, tmp_path: Path
) -> None:
    folder, out = write_log(numbers(50)), tmp_path / "out"
    replay(folder, out, 30, 39)
    assert replay(folder, out, 10, 19).pieces[0].entries == range(10, 20)
    other = write_log(numbers(50, "other"), base=tmp_path / "other")
    with pytest.raises(OutputInvalid, match=r"entry 39 of .* is another one"):
        replay(other, out, 45, 49)


def test_a_table_whose_files_were_copied_from_another_output_is_refused(
    write_log: LogWriter, tmp_path: Path
) -> None:
    folder = write_log(numbers(50))
    other = write_log(numbers(50, "other"), base=tmp_path / "other")
    replay(folder, tmp_path / "out")
    replay(other, tmp_path / "theirs")
    shutil.rmtree(tmp_path / "out" / "messages")
    shutil.copytree(tmp_path / "theirs" / "messages", tmp_path / "out" / "messages")
    with pytest.raises(OutputInvalid, match=r"messages.*is another one"):
        replay(folder, tmp_path / "out")


def test_logs_of_java_are_compared_by_their_bodies(tmp_path: Path) -> None:
    ours, other = tmp_path / "java", tmp_path / "other"
    shutil.copytree(GOLDEN / "tiny" / "n0", ours)
    shutil.copytree(ours, other)
    replay(ours, tmp_path / "out", last="end")
    log = open_log(str(other))
    segment = log.segments[-1]
    with Path(segment.path).open("r+b") as file:
        content = file.read()
        entry = content.rfind(b"\0\0\0\x4f", 0, content.rindex((79).to_bytes(8, "big")) + 8)
        file.seek(entry + 4 + 32)
        file.write(b"??")
    assert replay(ours, tmp_path / "out", last="end").pieces == []
    with pytest.raises(OutputInvalid, match=r"entry 79 of .* is another one"):
        replay(other, tmp_path / "out", last="end")


def test_a_gap_between_output_and_log_is_an_error_that_can_be_passed_over(
    write_log: LogWriter, tmp_path: Path
) -> None:
    folder, out = write_log(numbers(200)), tmp_path / "out"
    replay(folder, out, None, 19)
    begin = cut(folder, 100)
    assert begin > 30
    with pytest.raises(DataLost, match=f"begins with entry {begin}") as caught:
        replay(folder, out)
    assert (caught.value.first, caught.value.last) == (20, begin - 1)
    with pytest.raises(OutputInvalid, match="nothing shows that both are the same log"):
        replay(folder, out, begin)
    assert indexes(out) == list(range(20))
    plan = replay(folder, out, fail_on_data_loss=False)
    [lost] = plan.lost
    assert (lost.first, lost.last) == (20, begin - 1)
    assert indexes(out) == [*range(20), *range(begin, 200)]


def test_a_hole_in_the_output_that_the_log_cannot_fill_any_more_is_an_error(
    write_log: LogWriter, tmp_path: Path
) -> None:
    folder, out = write_log(numbers(200)), tmp_path / "out"
    replay(folder, out, file_bytes=4096)
    hole = published(str(out), "messages")[1]
    os.unlink(hole.path)
    begin = cut(folder, 150)
    with pytest.raises(DataLost, match=f"begins with entry {begin}") as caught:
        replay(folder, out)
    assert (caught.value.first, caught.value.last) == (hole.entries.start, hole.entries.stop - 1)
    [lost] = replay(folder, out, fail_on_data_loss=False).lost
    assert range(lost.first, lost.last + 1) == hole.entries
    assert replay(folder, out, begin).lost == []  # the range was asked for


@pytest.mark.parametrize("word", ["entry", "other"])
def test_a_log_that_begins_where_the_output_ends_is_compared_by_what_it_followed(
    word: str, write_log: LogWriter, tmp_path: Path
) -> None:
    folder, out = write_log(numbers(200)), tmp_path / "out"
    begin = cut(folder, 100)
    shutil.rmtree(folder)
    folder = write_log(numbers(200))
    replay(folder, out, None, begin - 1)
    shutil.rmtree(folder)
    folder = write_log(numbers(200, word))
    assert cut(folder, 100) == begin
    if word == "entry":
        replay(folder, out)
        assert indexes(out) == list(range(200))
    else:
        with pytest.raises(OutputInvalid, match=f"entry {begin - 1} of .* is another one"):
            replay(folder, out)


def test_a_damaged_entry_that_both_have_leaves_an_older_one_to_compare(
    write_log: LogWriter, tmp_path: Path
) -> None:
    folder, out = write_log(numbers(200)), tmp_path / "out"
    replay(folder, out, None, 99)
    replay(folder, out, None, 149)
    row = pq.read_table(out / "entries").sort_by("index").to_pylist()[149]
    segment = folder / "data" / f"{row['pos'] // 4096 * 4096:020d}"
    content = bytearray(segment.read_bytes())
    content[row["pos"] % 4096 + 50] ^= 1
    segment.write_bytes(content)
    assert replay(folder, out, 180).pieces[0].entries == range(180, 200)


@pytest.mark.parametrize("table", ["entries", "messages"])
def test_an_output_with_other_columns_is_refused(
    table: str, write_log: LogWriter, tmp_path: Path
) -> None:
    folder, out = write_log(numbers(20)), tmp_path / "out"
    replay(folder, out)
    path = published(str(out), table)[0].path
    notes = pq.read_metadata(path).metadata
    pq.write_table(pq.read_table(path).drop(["raft_group"]).replace_schema_metadata(notes), path)
    with pytest.raises(OutputInvalid, match=f"columns that the table of {table} has now"):
        replay(folder, out)
