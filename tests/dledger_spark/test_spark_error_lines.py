"""What can go wrong with each option and folder, and the one line that tells of it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")
pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")

import dledger
from dledger import blocking
from dledger.free_ports import free_addresses
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.store_config import StoreConfig
from dledger_spark import session
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.commands.terminal import line_of_spark
from dledger_spark.errors import DledgerSparkError, LogDamaged, SparkTooOld
from dledger_spark.log import folder_log, network_log
from dledger_spark.query.source_options import OPTIONS
from dledger_spark.source import DledgerDataSource
from dledger_spark.spark_version import FOR_STREAMS, require_spark
from remoting.message.record import MessageRecord
from tests.dledger_spark.batch_query import table_of
from tests.dledger_spark.broker_bodies import BrokerBodies
from tests.dledger_spark.file_size_limit import file_size_limit
from tests.project.example_values import error_classes, example_error

ROOT = Path(__file__).parents[2]
LogWriter = Callable[..., Path]
COUNT = 120


@dataclass
class Folders:
    """Logs and other things below one folder.

    Attributes:
        base: that folder.
        first_kept: the first entry of the log `cut`.
    """

    base: Path
    first_kept: int

    def __getattr__(self, name: str) -> str:
        return str(self.base / name)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    base = tmp_path_factory.mktemp("folders")
    found = BrokerBodies()
    found.put_topic("t")
    for at in range(COUNT - 1):
        found.message(MessageRecord(topic="t", body=b"%d" % at))
    config = StoreConfig(4096, 1024, max_body_bytes=4040, spare_segments=0)
    store = open_store(OsDisk(), str(base / "first"), config, "g", "n0")
    store.append(1, 1, found.bodies)
    store.begin_sync(None).run()
    store.note_committed(COUNT - 1)
    store.save_committed()
    store.close()
    log = base / "log"
    shutil.move(base / "first" / "dledger-n0", log)
    for name in ("damaged", "java", "lacking", "scrambled", "cut/dledger-n0"):
        shutil.copytree(log, base / name)
    segments = sorted(path.name for path in (log / "data").iterdir())
    (base / "lacking" / "data" / segments[1]).unlink()
    (base / "java" / "hard-state").unlink()
    damaged = base / "damaged" / "data" / segments[0]
    content = bytearray(damaged.read_bytes())
    content[1000] ^= 1
    damaged.write_bytes(content)
    (base / "scrambled" / "hard-state").write_bytes(b"\xff" * 4096)
    store = open_store(OsDisk(), str(base / "cut"), config, "g", "n0")
    store.discard_before(60)
    store.begin_sync(None).run()
    first_kept = store.first_index
    store.close()
    (base / "kafka" / "orders-0").mkdir(parents=True)
    (base / "kafka" / "orders-0" / f"{0:020d}.log").write_bytes(b"x")
    (base / "file").write_text("all of it")
    return Folders(base, first_kept)


def run(words: list[str]) -> tuple[int, list[str]]:
    """The exit code, and the lines of both outputs."""
    done = CliRunner().invoke(dledger_spark, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    lines = done.output.splitlines()
    assert not [line for line in lines if line.startswith(("Traceback", "\tat ", "  File "))]
    return done.exit_code, lines


def check(words: list[str], code: int, problem: str, *, own: bool = False) -> None:
    found, lines = run(words)
    assert found == code, lines
    if code == 1:
        assert len(lines) == 1, lines
    assert lines[-1].startswith("Error: [DLEDGER_" if code == 1 and own else "Error: "), lines
    assert problem in lines[-1], lines


READING = ("show", "count", "replay", "tables")
PATHS = {
    "a path that is not there": ("nowhere", "does not exist: point at the folder of a node"),
    "a file": ("file", "is a file: point at the folder of a node"),
    "a folder of another program": ("kafka", "holds no log: no dledger-<id>/data/ is in it"),
    "an object store": ("s3a://bucket/log", "only folders of this machine can be used: mount it"),
    "another machine's file": ("file://elsewhere/log", "only folders of this machine can be used"),
    "a URL of nothing": ("file:///nowhere/log", "/nowhere/log: does not exist"),
    "a hard state that cannot be read": ("scrambled", "neither slot holds a whole record"),
    "a name that is too long": ("x" * 300, "File name too long"),
    "a name of two lines": ("a\nb", "a\\nb: does not exist"),
    "a missing segment": ("lacking", "is missing, so entries"),
}


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("what", PATHS)
def test_a_wrong_path(what: str, command: str, folders: Folders, tmp_path: Path) -> None:
    path, problem = PATHS[what]
    path = path if "://" in path else f"{folders.base}/{path}"
    out = ["--out", str(tmp_path / "out")] if command in ("replay", "tables") else []
    check([command, "--path", path, *out], 1, problem)


NUMBERS = {
    "--from": ("-1", "1e5", "9" * 5000, "0x10", "", "nan"),
    "--to": ("-1", "1.5", "9" * 5000, str(10**30), str(COUNT)),
}


@pytest.mark.parametrize(
    ("option", "value"), [(name, value) for name, values in NUMBERS.items() for value in values]
)
def test_a_hostile_number_in_a_range(option: str, value: str, folders: Folders) -> None:
    code, lines = run(["show", "--path", folders.log, option, value])
    if value == "":
        assert code == 0  # as if it were not given
        return
    assert (code, len(lines)) == (1, 1), lines
    assert len(lines[0]) < 6000
    assert "give the index of an entry, 0 or more" in lines[0] or "committed is 119" in lines[0]


WRONG_CALLS = {
    "no log": (["show"], "give --path, or --bootstrap and --group"),
    "no rows": (["show", "--path", "p", "--limit", "0"], "--limit"),
    "no cores": (["count", "--path", "p", "--cores", "0"], "--cores"),
    "a million cores": (["count", "--path", "p", "--cores", "1000000"], "--cores"),
    "a file of no bytes": (["replay", "--path", "p", "--out", "o", "--file-bytes", "0"], "file-b"),
    "no time": (["stream", "--path", "p", "--out", "o", "--every", "nan"], "no number"),
    "all time": (["stream", "--path", "p", "--out", "o", "--refresh", "inf"], "--refresh"),
    "no bytes a second": (
        ["show", "--bootstrap", "a:1", "--group", "g", "--max-bytes-per-second", "0"],
        "--max-bytes-per-second",
    ),
    "another Java": (["count", "--path", "p", "--java", "graal"], "--java"),
}


@pytest.mark.parametrize("what", WRONG_CALLS)
def test_a_wrong_call(what: str) -> None:
    words, problem = WRONG_CALLS[what]
    check(words, 2, problem)


def test_damage_is_told_by_what_reads_the_entry(folders: Folders, tmp_path: Path) -> None:
    for command in (["show"], ["tables", "--out", str(tmp_path / "out")]):
        check([*command, "--path", folders.damaged], 1, "the body does not match its CRC", own=True)


def test_every_error_has_a_condition_of_its_own_as_errors_of_spark_do() -> None:
    kinds = [kind for kind in error_classes() if issubclass(kind, DledgerSparkError)]
    conditions = {kind.condition for kind in kinds}
    assert len(conditions) == len(kinds) > 15
    assert {"DLEDGER_LOG_DAMAGED", "DLEDGER_DATA_LOST", "DLEDGER_OPTION_INVALID"} <= conditions
    for kind in kinds:
        error = example_error(kind)
        assert isinstance(error, DledgerSparkError)
        if kind is not DledgerSparkError:  # the base class, which is never raised
            assert str(error).startswith(f"[{error.getCondition()}] "), str(error)


def test_a_worker_of_spark_leaves_out_the_frames_of_the_sources_errors_alone(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    source = DledgerDataSource({"path": folders.damaged})
    reader = source.reader(source.schema())
    [piece] = reader.partitions()

    def asked() -> None:
        with pytest.raises(LogDamaged):
            list(reader.read(piece))

    asked()  # in the driver, where other programs' errors keep their frames
    assert not os.environ["SPARK_HIDE_TRACEBACK"]
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    with pytest.raises(AttributeError):
        source.reader(None)
    assert not os.environ["SPARK_HIDE_TRACEBACK"]
    asked()
    assert os.environ["SPARK_HIDE_TRACEBACK"]


def test_a_log_of_java_wants_its_end(folders: Folders) -> None:
    check(["show", "--path", folders.java], 1, 'give an index as "to"')


def test_what_retention_took_is_told_or_passed_over(folders: Folders) -> None:
    assert 0 < folders.first_kept < COUNT
    words = ["show", "--path", folders.cut, "--from", "1", "--limit", "1"]
    check(words, 1, f"the first entry kept is {folders.first_kept}; start there, or use")
    code, lines = run([*words, "--no-fail-on-data-loss"])
    assert code == 0
    assert lines[0] == f"entries 1..{folders.first_kept - 1} are lost, and left out"
    assert lines[2].startswith(f"{folders.first_kept}\t")


def first_of(**options: str) -> int:
    return int(table_of(DledgerDataSource(options))["index"][0].as_py())


@pytest.mark.parametrize("option", ["startingOffsets", "from"])
def test_a_query_that_begins_before_retention_is_told_or_begins_later(
    option: str, folders: Folders
) -> None:
    with pytest.raises(DledgerSparkError, match=f"{folders.first_kept}.*failOnDataLoss=false"):
        first_of(path=folders.cut, **{option: "1"})
    assert first_of(path=folders.cut, failOnDataLoss="false", **{option: "1"}) == folders.first_kept


def test_a_stream_that_begins_before_retention_is_told_or_begins_later(folders: Folders) -> None:
    for loses, expected in (("true", None), ("false", folders.first_kept)):
        options = {"path": folders.cut, "startingOffsets": "1", "failOnDataLoss": loses}
        found = DledgerDataSource(options)
        reader = found.streamReader(found.schema())
        if expected is None:
            with pytest.raises(DledgerSparkError, match="failOnDataLoss=false"):
                reader.initialOffset()
        else:
            assert reader.initialOffset()["groups"]["g"]["next"] == expected


def test_a_folder_without_rights(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    original = os.open

    def closed(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).startswith(folders.log):  # root may open everything
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", closed)
    for command in READING:
        out = ["--out", str(tmp_path / command)] if command in ("replay", "tables") else []
        check([command, "--path", folders.log, *out], 1, "give this user access to it")


def test_an_output_that_cannot_be_made(folders: Folders, tmp_path: Path) -> None:
    for command in ("replay", "tables"):
        words = [command, "--path", folders.log, "--out"]
        check([*words, "/proc/out"], 1, "/proc/out cannot be written (")
        check([*words, "s3a://bucket/out"], 1, "out='s3a://bucket/out': only folders of this")
        check([*words, folders.file], 1, "is a file: name a folder")
        check([*words, folders.kafka], 1, "'orders-0', which")
    made = str(tmp_path / "tables")
    assert run(["tables", "--path", folders.log, "--out", made])[0] == 0
    report = ["report", "--tables", made, "--out", str(tmp_path / "nowhere" / "report.html")]
    check(report, 1, "No such file or directory")
    check(["sql", "--tables", made, "select * from traffik"], 1, "traffik does not exist!")
    check(["sql", "--tables", made, "selekt"], 1, "the query cannot be answered: Parser Error")
    check(["sql", "--tables", str(tmp_path / "none"), "select 1"], 1, "none")
    check(["report", "--tables", str(tmp_path / "none"), "--out", "-"], 1, "none")


def test_a_full_disk_below_the_tables(folders: Folders, tmp_path: Path) -> None:
    out = str(tmp_path / "tables")
    with file_size_limit(500):
        check(["tables", "--path", folders.log, "--out", out], 1, "File too large")
    assert run(["tables", "--path", folders.log, "--out", out])[0] == 0


# What is wrong with each option of the source: others with it, its value, what the line says.
WRONG_OPTIONS: dict[str, tuple[dict[str, str], str, str]] = {
    "path": ({}, "hdfs://a/b", "only folders of this machine"),
    "bootstrap": ({"path": "", "group": "g"}, "nowhere", "bootstrap"),
    "group": ({"path": "", "bootstrap": "a:1"}, "g,,h", "1 to 256 names of groups"),
    "tlsCert": ({}, "c.pem", "it belongs to bootstrap"),
    "tlsKey": ({"path": "", "bootstrap": "a:1", "group": "g"}, "k.pem", "tlsCert='': TLS takes"),
    "tlsCa": ({"path": "", "bootstrap": "a:1", "group": "g"}, "a.pem", "tlsCert='': TLS takes"),
    "credentials": ({}, "user.toml", "it belongs to bootstrap"),
    "maxBytesPerSecond": ({"path": "", "bootstrap": "a:1", "group": "g"}, "-1", "1 or more"),
    "table": ({}, "rows", "use one of entries, messages"),
    "paths": ({"path": ""}, "[]", "give JSON of 1 to 64 paths"),
    "subscribePattern": ({"table": "messages"}, "*", "no regular expression of Python"),
    "startingOffsetsByTimestamp": ({}, "{}", "milliseconds since 1970 by group"),
    "startingOffsetsByTimestampStrategy": ({"startingTimestamp": "5"}, "x", "use error or latest"),
    "endingOffsetsByTimestamp": ({}, "x", "milliseconds since 1970 by group"),
    "minOffsetsPerTrigger": ({}, "5", "this is no stream"),
    "maxTriggerDelay": ({"minOffsetsPerTrigger": "5"}, "5s", "this is no stream"),
    "subscribe": ({"table": "messages"}, "a,,b", "names of topics"),
    "from": ({}, "٣x", "give the index of an entry"),
    "to": ({}, str(2**64), "committed is 119"),
    "startingOffsets": ({}, str(2**63), "use earliest, latest, an index, or JSON"),
    "endingOffsets": ({}, '{"g": 1e3}', "use earliest, latest, an index, or JSON"),
    "startingTimestamp": ({"table": "messages"}, "-5", "give milliseconds since 1970"),
    "endingTimestamp": ({"table": "messages"}, "now", "give milliseconds since 1970"),
    "maxOffsetsPerTrigger": ({}, "5", "this is no stream"),
    "maxBytesPerTrigger": ({}, "5", "this is no stream"),
    "partitionBytes": ({}, "1e9", "1 or more"),
    "minPartitions": ({}, "0", "1 or more"),
    "checksums": ({}, "maybe", "use true or false"),
    "includeProperties": ({}, "1", "use true or false"),
    "decompress": ({}, "true", "add table=messages"),
    "failOnDataLoss": ({}, "no", "use true or false"),
}


def test_the_list_of_wrong_options_is_whole() -> None:
    assert WRONG_OPTIONS.keys() == set(OPTIONS)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_wrong_option_of_the_source(option: str, folders: Folders) -> None:
    others, value, problem = WRONG_OPTIONS[option]
    source = DledgerDataSource({"path": folders.log, **others, option: value})
    with pytest.raises(DledgerSparkError) as caught:
        source.reader(source.schema()).partitions()
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pieces_of_a_byte_do_not_become_tasks_without_bound(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_log, "MAX_PIECES", 7)
    source = DledgerDataSource({"path": folders.log, "partitionBytes": "1"})
    reader = source.reader(source.schema())
    pieces = reader.partitions()
    assert len(pieces) == 7
    rows = sum(len(batch) for piece in pieces for batch in reader.read(piece))
    assert rows == COUNT


def test_addresses_that_give_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(network_log, "TIMEOUT_S", 0.5)
    peers = dict(zip(("n0", "n1", "n2"), free_addresses(3), strict=True))
    words = ["show", "--group", "g", "--bootstrap"]
    check([*words, peers["n1"]], 1, "does not answer (")
    check([*words, "127.0.0.1:99999999"], 1, "bootstrap=")
    config = dledger.NodeConfig(group="g", node_id="n0", peers=peers, data_dir=tmp_path, new=True)
    with blocking.open_node(config, dledger.LogOnly()):
        # The other two are down, so there is no leader.
        check([*words, ",".join(peers.values())], 1, "does not answer (")
        check([*words, peers["n0"]], 1, "check the addresses and the group's name, or read the")


def test_no_java_or_an_old_one(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["count", "--path", folders.log, "--java", "system"]
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    check(words, 1, "Spark needs Java 17 or later (JAVA_HOME: none; PATH: none): set JAVA_HOME")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check(words, 1, f"JAVA_HOME: {java} is Java 11")


def test_a_java_that_ends_before_spark_begins(folders: Folders, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\n[ "$1" = -version ] && echo \'version "21"\' >&2\n')
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    ended = subprocess.run(
        [sys.executable, "-m", "dledger_spark", "count", "--path", folders.log],
        env={**os.environ, "JAVA_HOME": str(tmp_path), "DLEDGER_SPARK_JAVA": "system"},
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
    )
    assert ended.returncode == 1
    # Before that stands what Java, or Spark's own script about it, has written.
    lines = ended.stderr.splitlines()
    assert lines[-1].startswith(
        f"Error: [DLEDGER_SPARK_FAILED] Spark did not begin with Java 21 at {java} ("
    )
    assert not [line for line in lines if line.startswith(("Traceback", "\tat "))]


def test_a_pyspark_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for version, is_enough in (("4.2.0", True), ("5.0.0.dev1", True), ("4.1.9", False)):
        monkeypatch.setattr("pyspark.__version__", version)
        if is_enough:
            require_spark(FOR_STREAMS, "a stream")
        else:
            with pytest.raises(SparkTooOld, match=r"needs pyspark 4\.2 or later, and 4\.1\.9"):
                require_spark(FOR_STREAMS, "a stream")
    words = ["stream", "--path", str(tmp_path), "--out", str(tmp_path / "out")]
    check(words, 1, "a stream needs pyspark 4.2 or later, and 4.1.9 is installed")
    source = DledgerDataSource({"path": str(tmp_path)})
    with pytest.raises(SparkTooOld):
        source.streamReader(source.schema())


def test_the_line_of_an_error_of_spark() -> None:
    trace = "[X] failed: Traceback (most recent call last):\n  File 'x'\n{}\n\n\tat org.apache"
    for inside, line in (
        ("dledger_spark.errors.DataLost: lost", "lost"),
        (
            "PermissionError: [Errno 13] Permission denied: '/log'",
            "[Errno 13] Permission denied: '/log': give this user access to it, or name another",
        ),
        ("OSError: [Errno 5] Input/output error", "[Errno 5] Input/output error: see that it is"),
        ("java.io.IOException: No space left on device", "the disk with Spark's temporary files"),
    ):
        assert (line_of_spark(trace.format(inside)) or "").startswith(line)
    assert line_of_spark(trace.format("KeyError: 'x'")) is None  # a trace is needed
    assert line_of_spark("Job aborted: \x1b\n\tat org.apache.spark") == "Job aborted: \\x1b"


@pytest.mark.spark
@pytest.mark.long
def test_errors_of_the_source_in_spark_have_one_line(
    spark: Any, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "local_session", lambda **_options: nullcontext(spark))
    check(["count", "--path", folders.damaged], 1, "the body does not match its CRC")
    for options, problem in (
        ({"path": "s3a://bucket/log"}, "only folders of this machine"),
        ({"path": folders.cut, "startingOffsets": "1"}, "failOnDataLoss=false"),
        ({"path": folders.log, "bootstrap": "a:1"}, "bootstrap is given as well"),
    ):
        with pytest.raises(Exception, match="dledger_spark") as caught:
            spark.read.format("dledger").options(**options).load().count()
        assert problem in (line_of_spark(str(caught.value)) or "")


@pytest.mark.long
@pytest.mark.spark
def test_a_wrong_python_in_the_environment_changes_nothing(folders: Folders) -> None:
    variables = {"PYSPARK_PYTHON": "/nowhere/python", "PYSPARK_DRIVER_PYTHON": "/nowhere/python"}
    ended = subprocess.run(
        [sys.executable, "-m", "dledger_spark", "count", "--path", folders.log],
        env={**os.environ, **variables},
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
