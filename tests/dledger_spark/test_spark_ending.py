"""Ctrl-C and SIGTERM end every command soon, with the code that shells report and the lock free."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

from dledger_spark.commands import ending
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.errors import TablesInvalid
from dledger_spark.tables import table_stream
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.update import update_tables
from tests.dledger_spark.test_spark_commands import LogWriter, orders, run

ROOT = Path(__file__).parents[2]
# Where each command is while it does what takes long.
LONG_WORK = {
    "replay": "dledger_spark.replay.replay.run_replay",
    "count": "dledger_spark.commands.topic_count.count_topics",
    "show": "dledger_spark.commands.preview.first_rows",
    "tables": "dledger_spark.tables.update.update_tables",
    "stream": "dledger_spark.tables.table_stream.TableStream.start",
    "sql": "dledger_spark.tables.duckdb_engine.DuckdbEngine.query",
    "report": "dledger_spark.report.page.page",
    "status": "dledger_spark.tables.condition.table_conditions",
    "prune": "dledger_spark.tables.pruning.prune",
    "publish": "dledger_spark.tables.publish.publish",
    "catalog": "dledger_spark.tables.catalog.registration",
}
ENDLESS = (
    "select count(*) from range(1000000000) a, range(1000000000) b where a.range % 7 = b.range % 5"
)


@contextmanager
def handled() -> Iterator[None]:
    """Signals are handled as in a process of the command."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, ending._raise)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ending._raised.clear()


def test_every_command_ends_with_the_code_of_the_signal_and_frees_its_lock(
    write_log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")
    assert LONG_WORK.keys() == dledger_spark.commands.keys()
    log, made = write_log(orders(9)), tmp_path / "made"
    assert run("tables", "--path", log, "--out", made)[0] == 0
    monkeypatch.setattr("dledger_spark.session.local_session", lambda **_options: nullcontext())
    places: dict[str, tuple[object, ...]] = {
        "sql": ("--tables", made, "select 1"),
        "report": ("--tables", made, "--out", tmp_path / "page"),
        "publish": ("--tables", made, "--target", tmp_path / "copy"),
        **dict.fromkeys(("status", "prune", "catalog"), ("--tables", made)),
    }
    found, wanted = {}, {}
    for command, place in LONG_WORK.items():
        for number in (signal.SIGINT, signal.SIGTERM):
            out = tmp_path / f"{command}-{number}"
            takes_out = command in ("replay", "tables", "stream")
            words = places.get(command, ("--path", log, *(("--out", out) if takes_out else ())))

            def signalled(*_: object, number: int = number, **__: object) -> None:
                os.kill(os.getpid(), number)
                raise AssertionError("the signal arrives before this")

            with handled(), monkeypatch.context() as patched:
                patched.setattr(place, signalled)
                code, text = run(command, *words)
            found[command, number] = code, "stopped: " in text
            wanted[command, number] = 128 + number, takes_out
            if command in ("tables", "stream"):
                with TableHome(str(out)).held():  # no other process holds it
                    pass
    assert found == wanted


def test_a_query_of_duckdb_is_interrupted_while_the_main_thread_waits_for_it(
    write_log: LogWriter, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert run("tables", "--path", write_log(orders(9)), "--out", out, "--facts-only")[0] == 0
    program = (
        "import os, signal, threading\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from dledger_spark.tables import duckdb_engine\n"
        "query = duckdb_engine.DuckdbEngine.batches\n"
        "def told(self, sql):\n"
        "    threading.Timer(0.2, os.kill, (os.getpid(), int(os.environ['SIGNAL']))).start()\n"
        "    return query(self, os.environ['ENDLESS'])\n"
        "duckdb_engine.DuckdbEngine.batches = told\n"
        "from dledger_spark.commands.spark_commands import main\n"
        "main()\n"
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        ended = subprocess.run(
            [sys.executable, "-c", program, "tables", "--path", tmp_path / "log", "--out", out],
            env={**os.environ, "SIGNAL": str(int(number)), "ENDLESS": ENDLESS},
            capture_output=True,
            check=False,
            cwd=ROOT,
            text=True,
            timeout=60,
        )
        assert (ended.returncode, ended.stderr.splitlines()[0][:8]) == (128 + number, "stopped:")
        assert "Traceback" not in ended.stderr


def test_what_a_library_makes_of_an_interruption_is_told_as_the_signal(
    write_log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swallowed(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt as error:
            raise TablesInvalid("table", f"cannot be written: {error!r}") from None

    monkeypatch.setattr("dledger_spark.tables.update.update_tables", swallowed)
    with handled():
        code, text = run("tables", "--path", write_log(orders(9)), "--out", tmp_path / "out")
    assert (code, text[:8]) == (143, "stopped:")


class Batch:
    """What Spark gives for a batch: how far it goes."""

    def __init__(self, last: int) -> None:
        self._last = last

    def groupBy(self, _name: str) -> Batch:  # noqa: N802
        return self

    def agg(self, _how: object) -> Batch:
        return self

    def collect(self) -> list[dict[str, Any]]:
        return [{"raft_group": "g", "max(index)": self._last}]


def test_a_stream_that_ends_writes_nothing_more_and_waits_for_what_is_written(
    write_log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, home = write_log(orders(9)), TableHome(str(tmp_path / "out"))
    reached, go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any, **more: Any) -> Any:
        reached.set()
        go_on.wait(30)
        return update_tables(*arguments, **more)

    monkeypatch.setattr("dledger_spark.tables.table_stream.update_tables", slow)
    tables = table_stream.TableStream(home, {"path": str(log)}, 1e9, lambda _added: None)
    failed: list[BaseException] = []

    def take() -> None:
        try:
            tables._take(Batch(8), 0)
        except table_stream.StreamEnding as ended:
            failed.append(ended)

    with home.held():
        batch = threading.Thread(target=take)
        batch.start()
        assert reached.wait(30)
        monkeypatch.setattr(table_stream, "END_S", 0.0)
        assert not tables.end()  # a thread still writes
        go_on.set()
        monkeypatch.setattr(table_stream, "END_S", 30.0)
        assert tables.end()
        batch.join(30)
        assert len(failed) == 1
        assert not Path(home.derived_path("traffic")).exists()


def test_a_process_that_cannot_stop_its_threads_ends_at_once_with_the_right_code() -> None:
    program = (
        "import threading, time\n"
        "from dledger_spark.commands.ending import Terminated, end_now\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "end_now(Terminated())\n"
    )
    began = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", program], check=False, cwd=ROOT, timeout=60)
    assert ended.returncode == 143
    assert time.monotonic() - began < 60
