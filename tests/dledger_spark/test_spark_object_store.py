"""Tables go to an object store, and come from logs that were shipped to one."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import fs

from dledger.free_ports import free_addresses
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.tables.derived import DERIVED
from dledger_spark.tables.table_home import TableHome
from tests.dledger_spark.test_spark_left_out import bodies
from tests.dledger_spark.test_spark_table_updates import PROJECT, rows_of

LogWriter = Callable[..., Path]
STARTED_MAX_S = 120
REGION = "us-east-1"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": REGION}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server of S3 with an empty bucket "orders"."""
    server = shutil.which("moto_server")
    if server is None:
        pytest.skip("no server of S3: pip install 'moto[server]', and put moto_server on PATH")
    (address,) = free_addresses(1)
    host, _, port = address.rpartition(":")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with (tmp_path / "store.log").open("wb") as log:
        process = subprocess.Popen([server, "-H", host, "-p", port], stdout=log, stderr=log)
    try:
        give_up_at = time.monotonic() + STARTED_MAX_S
        while not answers(host, int(port)):
            assert process.poll() is None, (tmp_path / "store.log").read_text()
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
        writing_to(address).create_dir("orders")
        yield address
    finally:
        process.terminate()
        process.wait()


def writing_to(address: str) -> fs.S3FileSystem:
    # Small objects come whole: the server answers otherwise than Arrow asks about parts.
    return fs.S3FileSystem(
        endpoint_override=address,
        scheme="http",
        region=REGION,
        allow_bucket_creation=True,
        allow_delayed_open=True,
    )


def answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port)).close()
    except OSError:
        return False
    return True


@pytest.mark.long
def test_tables_are_published_to_an_object_store_each_row_once(
    store: str, write_log: LogWriter, tmp_path: Path
) -> None:
    folder, out = write_log(bodies(200)), tmp_path / "tables"
    options = {"AWS_ENDPOINT_URL": f"http://{store}", "AWS_ALLOW_HTTP": "true"}
    words = ["publish", "--tables", str(out), "--target", "s3://orders/tables"]
    for name, value in options.items():
        words += ["--storage-option", f"{name}={value}"]
    for _ in range(2):
        run("tables", "--path", str(folder), "--out", str(out))
        first = run(*words)
        assert first
        home = TableHome(str(out))
        for name in FACTS:
            here = DeltaTable(home.fact_path(name))
            there = DeltaTable(f"s3://orders/tables/facts/{name}", storage_options=options)
            assert there.to_pyarrow_table().num_rows == here.to_pyarrow_table().num_rows, name
        for name in DERIVED:
            there = DeltaTable(f"s3://orders/tables/derived/{name}", storage_options=options)
            here = DeltaTable(home.derived_path(name))
            assert there.to_pyarrow_table().num_rows == here.to_pyarrow_table().num_rows, name
        again = json.loads(run(*words, "--json"))
        assert not any(value for value in again["rows"].values()), again
        write_log(bodies(30)[1:])
    entries = DeltaTable("s3://orders/tables/facts/entries", storage_options=options)
    indexes = entries.to_pyarrow_table().column("index")
    assert pc.count_distinct(indexes).as_py() == len(indexes) == 229


@pytest.mark.long
def test_the_documented_program_makes_tables_of_a_log_that_was_shipped_to_an_object_store(
    store: str, write_log: LogWriter, tmp_path: Path
) -> None:
    [text] = re.findall(r"```python\n(# shipped\.py.*?)```", tables_page(), re.DOTALL)
    program = tmp_path / "shipped.py"
    program.write_text(text.replace("FILES_MAX = 4", "FILES_MAX = 2"))
    node, out = tmp_path / "dledger-n0", tmp_path / "tables"
    url = f"s3://orders/logs/dledger-n0?scheme=http&endpoint_override={store}&region={REGION}"
    bucket = writing_to(store)
    folder = write_log(bodies(200))
    for _ in range(2):
        files = sorted(path for path in folder.glob("data/*") if path.is_file())
        for path in (folder / "hard-state", *files):
            with bucket.open_output_stream(
                f"orders/logs/dledger-n0/{path.relative_to(folder)}"
            ) as copy:
                copy.write(path.read_bytes())
        done = subprocess.run(
            [sys.executable, str(program), url, str(node), str(out)],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        assert len(files) > 4
        assert len(list((node / "data").iterdir())) == 1
        at_once = TableHome(str(tmp_path / "at-once"))
        run("tables", "--path", str(folder), "--out", at_once.path)
        assert rows_of(TableHome(str(out))) == rows_of(at_once)
        write_log(bodies(30)[1:])


def run(*words: str) -> str:
    done = CliRunner().invoke(dledger_spark, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


def tables_page() -> str:
    return (PROJECT / "docs" / "tables.md").read_text(encoding="utf-8")
