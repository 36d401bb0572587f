"""Tables by tasks on a cluster, while workers and drivers are killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")
pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

from deltalake import DeltaTable

from dledger_spark.errors import JavaMissing
from dledger_spark.tables.derived import STORED
from dledger_spark.tables.duckdb_engine import duckdb_engine
from dledger_spark.tables.refresh import refresh
from dledger_spark.tables.table_home import TableHome
from tests.dledger_spark.spark_cluster import descendants, spark_cluster, until
from tests.dledger_spark.test_spark_table_updates import rows_of, scripted, update, write

JOB = Path(__file__).with_name("cluster_tables_job.py")
WAIT_S = 600


@pytest.mark.long
@pytest.mark.spark
def test_a_cluster_makes_the_tables_of_one_process_though_a_driver_and_a_worker_are_killed(
    tmp_path: Path,
) -> None:
    logs = [
        write(log, tmp_path / "logs" / group, 0, len(log.entries), group)
        for group, log in (("g", scripted(1, 300)), ("h", scripted(2, 200)))
    ]
    home = TableHome(str(tmp_path / "tables"))
    folder = tmp_path / "job"
    folder.mkdir()
    told = {
        "logs": str(tmp_path / "logs"),
        "out": home.path,
        "sizes": {"round_bytes": 12_000, "range_bytes": 4_000},  # of logs of 40 and 25 KB
        "derived": True,
    }
    (folder / "asked.json").write_text(json.dumps(told))
    (tmp_path / "cluster").mkdir()
    try:
        with spark_cluster(tmp_path / "cluster") as cluster:
            (folder / "hold-2").touch()
            first = cluster.submit(JOB, str(folder / "asked.json"))
            rounds = folder / "rounds"
            until(lambda: first.poll() is not None or _number(rounds) == 2, WAIT_S)
            assert first.poll() is None
            for process in (*descendants(first.pid), first.pid):
                os.kill(process, signal.SIGKILL)
            first.wait()
            rounds.unlink()
            second = cluster.submit(JOB, str(folder / "asked.json"))
            until(lambda: second.poll() is not None or _number(rounds) == 2, WAIT_S)
            assert second.poll() is None
            cluster.kill_worker()
            (folder / "hold-2").unlink()
            cluster.finish(second)
    except JavaMissing as missing:
        pytest.skip(str(missing))
    assert (folder / "done").exists()
    at_once = TableHome(str(tmp_path / "at-once"))
    for log in logs:
        update(at_once, log)
    with at_once.held():
        refresh(at_once, duckdb_engine, {})
    assert rows_of(home) == rows_of(at_once)
    for name in STORED:
        assert _rows(home, name) == _rows(at_once, name), name


def _number(file: Path) -> int:
    return int(file.read_text() or 0) if file.exists() else 0


def _rows(home: TableHome, name: str) -> list[str]:
    table = DeltaTable(home.derived_path(name)).to_pyarrow_table()
    return sorted(map(repr, table.to_pylist()))
