from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dledger.entry import Body
from dledger_spark.errors import LogDamaged, OutputFailed, OutputInvalid, RunReplaced
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import open_log
from dledger_spark.replay.replay import Piece, is_published, plan_replay, write_piece
from dledger_spark.replay.table_folder import Published, missing, published, replay_run
from remoting.message.record import MessageRecord
from tests.dledger_spark.broker_bodies import BrokerBodies
from tests.dledger_spark.file_size_limit import file_size_limit
from tests.examples import examples

LogWriter = Callable[..., Path]
FILE_BYTES = 2000


def bodies(count: int) -> list[Body]:
    """Three topics, and from entry 3 on every second one a message."""
    found = BrokerBodies()
    for at in range(count):
        if at < 3:
            found.put_topic(f"t{at}")
        elif at % 2 == 0:
            found.message(MessageRecord(topic=f"t{at % 3}", body=bytes([at % 251]) * 20))
        else:
            found.command()
    return found.bodies


def replay(
    folder: Path, out: Path, last: str | None = None, stop_after: int | None = None
) -> list[Piece]:
    """A replay without Spark; `stop_after` pieces it is as good as killed."""
    log = FolderLog(open_log(str(folder)))
    with replay_run(str(out)) as run:
        pieces = plan_replay(log, log.resolve(None, last), str(out), FILE_BYTES).pieces
        for piece in pieces[:stop_after]:
            write_piece(log, str(out), run, piece)
    return pieces


def indexes(out: Path, table: str) -> list[int]:
    files = published(str(out), table)
    return [at for file in files for at in pq.read_table(file.path)["index"].to_pylist()]


def test_a_replay_writes_every_entry_and_message_once(write_log: LogWriter, tmp_path: Path) -> None:
    folder = write_log(bodies(100))
    pieces = replay(folder, tmp_path / "out")
    assert len(pieces) > 3
    assert indexes(tmp_path / "out", "entries") == list(range(100))
    assert indexes(tmp_path / "out", "messages") == list(range(4, 100, 2))


def test_a_second_replay_has_nothing_to_do(write_log: LogWriter, tmp_path: Path) -> None:
    folder = write_log(bodies(50))
    replay(folder, tmp_path / "out")
    assert replay(folder, tmp_path / "out") == []


def test_a_later_replay_adds_what_was_committed_meanwhile(
    write_log: LogWriter, tmp_path: Path
) -> None:
    folder = write_log(bodies(50))
    replay(folder, tmp_path / "out")
    write_log(bodies(33))
    assert replay(folder, tmp_path / "out")[0].entries.start == 50
    assert indexes(tmp_path / "out", "entries") == list(range(83))


@pytest.mark.parametrize("stop_after", [0, 1, 2, 5])
def test_a_replay_that_stopped_goes_on(
    stop_after: int, write_log: LogWriter, tmp_path: Path
) -> None:
    folder = write_log(bodies(100))
    whole = replay(folder, tmp_path / "out", stop_after=stop_after)
    rest = replay(folder, tmp_path / "out")
    assert sum(len(piece.entries) for piece in rest) == 100 - sum(
        len(piece.entries) for piece in whole[:stop_after]
    )
    assert indexes(tmp_path / "out", "entries") == list(range(100))
    assert indexes(tmp_path / "out", "messages") == list(range(4, 100, 2))


def test_a_table_that_lacks_a_file_gets_only_that_one(write_log: LogWriter, tmp_path: Path) -> None:
    folder, out = write_log(bodies(100)), tmp_path / "out"
    replay(folder, out)
    lost = published(str(out), "messages")[1]
    os.unlink(lost.path)
    untouched = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    pieces = replay(folder, out)
    assert [(piece.entries, piece.tables) for piece in pieces] == [(lost.entries, ("messages",))]
    assert all(is_published(str(out), piece) for piece in pieces)
    assert {path: path.stat().st_mtime_ns for path in untouched} == untouched
    assert indexes(out, "messages") == list(range(4, 100, 2))


def test_a_failed_piece_leaves_no_file(write_log: LogWriter, tmp_path: Path) -> None:
    folder, out = write_log(bodies(100)), tmp_path / "out"
    file = folder / "data" / f"{0:020d}"
    file.write_bytes(file.read_bytes()[:3000] + b"\xff" + file.read_bytes()[3001:])
    with pytest.raises(LogDamaged):
        replay(folder, out)
    names = [path.name for path in out.rglob("*") if path.is_file()]
    assert not [name for name in names if "unfinished" in name]
    assert indexes(out, "entries") == list(range(len(indexes(out, "entries"))))


@pytest.mark.parametrize("size", [0, 1000, 5000])
def test_a_full_disk_is_one_line_and_the_replay_goes_on_later(
    size: int, write_log: LogWriter, tmp_path: Path
) -> None:
    folder, out = write_log([os.urandom(500) for _ in range(100)]), tmp_path / "out"
    with file_size_limit(size), pytest.raises(OutputFailed) as caught:
        replay(folder, out)
    assert "\n" not in str(caught.value)
    assert "File too large" in str(caught.value)
    assert [path for path in out.rglob("*") if "parquet" in path.name] == []
    assert [path for path in out.rglob("*") if "unfinished" in path.name] == []
    replay(folder, out)
    assert indexes(out, "entries") == list(range(100))


def test_files_left_unfinished_are_removed(write_log: LogWriter, tmp_path: Path) -> None:
    folder, out = write_log(bodies(10)), tmp_path / "out"
    replay(folder, out)
    left = out / "entries" / ".0-1-ab.unfinished"
    left.write_bytes(b"half")
    replay(folder, out)
    assert not left.exists()


def test_a_worker_of_a_killed_replay_cannot_publish(write_log: LogWriter, tmp_path: Path) -> None:
    folder, out = write_log(bodies(10)), str(tmp_path / "out")
    log = FolderLog(open_log(str(folder)))
    with replay_run(out) as old:
        pieces = plan_replay(log, range(10), out, FILE_BYTES).pieces
    with replay_run(out) as new:
        with pytest.raises(RunReplaced):
            write_piece(log, out, old, pieces[0])
        assert published(out, "entries") == []
        write_piece(log, out, new, pieces[0])
    assert len(published(out, "entries")) == 1


def test_two_replays_into_one_folder_are_refused(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    with (
        replay_run(out),
        pytest.raises(OutputInvalid, match="another replay writes there"),
        replay_run(out),
    ):
        pytest.fail("a second replay took the folder")
    with replay_run(out) as run:
        assert run


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(OutputInvalid, match=r"thesis\.tex"), replay_run(str(tmp_path)):
        pytest.fail("it took the folder")
    with pytest.raises(OutputInvalid, match="is a file"), replay_run(str(tmp_path / "thesis.tex")):
        pytest.fail("it took the file")


def test_the_output_of_another_log_is_refused(write_log: LogWriter, tmp_path: Path) -> None:
    out = tmp_path / "out"
    replay(write_log(bodies(50)), out)
    other = write_log([b"other"] * 80, base=tmp_path / "other")
    with pytest.raises(OutputInvalid, match="made from another log"):
        replay(other, out)


def test_the_output_of_a_node_ahead_of_this_one_is_taken(
    write_log: LogWriter, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    replay(write_log(bodies(80), base=tmp_path / "ahead"), out)
    behind = write_log(bodies(50), base=tmp_path / "behind")
    assert replay(behind, out) == []
    shutil.rmtree(tmp_path / "behind")
    other = write_log([b"x"] * 50, base=tmp_path / "behind")
    with pytest.raises(OutputInvalid, match="made from another log"):
        replay(other, out)


def test_a_foreign_parquet_file_is_told(write_log: LogWriter, tmp_path: Path) -> None:
    folder, out = write_log(bodies(10)), tmp_path / "out"
    replay(folder, out)
    path = Path(published(str(out), "entries")[0].path)
    path.write_bytes(b"no parquet")
    with pytest.raises(OutputInvalid, match="is no file of a replay"):
        replay(folder, out)


def test_files_that_overlap_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "entries"
    folder.mkdir()
    for first, last in ((0, 9), (9, 12)):
        (folder / f"{first:020d}-{last:020d}.parquet").touch()
    with pytest.raises(OutputInvalid, match="covers entries that"):
        published(str(tmp_path), "entries")


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(0, 40), max_size=12, unique=True),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_gaps_are_what_no_file_covers(borders: list[int], start: int, stop: int) -> None:
    borders.sort()
    files = [
        Published("", range(first, last))
        for first, last in zip(borders[::2], borders[1::2], strict=False)
    ]
    covered = {index for file in files for index in file.entries}
    gaps = missing(files, range(start, stop))
    assert [at for gap in gaps for at in gap] == [
        at for at in range(start, stop) if at not in covered
    ]
