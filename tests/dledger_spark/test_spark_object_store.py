"""Tables go to an object store, and come from logs that were shipped to one."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
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
from dledger_spark.tables import shipped
from dledger_spark.tables.derived import DERIVED
from dledger_spark.tables.table_home import TableHome
from tests.dledger_spark.test_spark_left_out import bodies
from tests.dledger_spark.test_spark_table_updates import rows_of

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


def ship(folder: Path, to: fs.FileSystem, path: str) -> int:
    """Copy a node's record and then its files; return the number of files."""
    files = sorted(one for one in folder.glob("data/*") if one.is_file())
    for one in (folder / "hard-state", *files):
        name = f"{path}/{one.relative_to(folder)}"
        to.create_dir(name.rpartition("/")[0])
        with to.open_output_stream(name) as copy:
            copy.write(one.read_bytes())
    return len(files)


def check_shipped(
    write_log: LogWriter, tmp_path: Path, to: fs.FileSystem, path: str, url: str
) -> None:
    """Make tables of a log that is shipped twice, and compare with those of the log itself."""
    out, folder = tmp_path / "tables", write_log(bodies(200))
    for _ in range(2):
        assert ship(folder, to, path) > 4
        run("tables", "--shipped", url, "--out", str(out))
        assert len(list(out.glob("_shipped/*/data/*"))) == 1
        at_once = TableHome(str(tmp_path / "at-once"))
        run("tables", "--path", str(folder), "--out", at_once.path)
        assert rows_of(TableHome(str(out))) == rows_of(at_once)
        write_log(bodies(30)[1:])


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "FILES_MAX", 2)


@pytest.mark.long
@pytest.mark.usefixtures("few_files")
def test_tables_are_made_of_a_log_in_an_object_store(
    store: str, write_log: LogWriter, tmp_path: Path
) -> None:
    url = f"s3://orders/logs/n0?scheme=http&endpoint_override={store}&region={REGION}"
    check_shipped(write_log, tmp_path, writing_to(store), "orders/logs/n0", url)
    wrong = url.replace("logs/n0", "logs/n1")
    line = refused("tables", "--shipped", wrong, "--out", str(tmp_path / "other"))
    assert "[DLEDGER_STORE_UNREADABLE]" in line


@pytest.mark.usefixtures("few_files")
def test_tables_are_made_of_a_log_that_was_shipped(write_log: LogWriter, tmp_path: Path) -> None:
    path = tmp_path / "far" / "n0"
    check_shipped(write_log, tmp_path, fs.LocalFileSystem(), str(path), path.as_uri())


@pytest.mark.usefixtures("few_files")
def test_a_copy_that_was_cut_is_made_again(
    write_log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = tmp_path / "far" / "n0", tmp_path / "tables"
    ship(write_log(bodies(200)), fs.LocalFileSystem(), str(path))
    words = ("tables", "--shipped", path.as_uri(), "--out", str(out))
    pieces, copied = shipped._Shipped._pieces, 0

    def cut(one: shipped._Shipped, name: str) -> Iterator[bytes]:
        nonlocal copied
        copied += 1
        for piece in pieces(one, name):
            yield piece[: len(piece) // 2] if copied == 6 else piece
            if copied == 6:
                raise KeyboardInterrupt

    monkeypatch.setattr(shipped._Shipped, "_pieces", cut)
    CliRunner().invoke(dledger_spark, list(words))
    assert copied == 6
    run(*words)
    run("tables", "--path", str(path), "--out", str(tmp_path / "at-once"))
    assert rows_of(TableHome(str(out))) == rows_of(TableHome(str(tmp_path / "at-once")))


@pytest.mark.usefixtures("few_files")
@pytest.mark.parametrize("committed", [0, 20, 120])
def test_files_stay_until_the_tables_have_their_entries(
    committed: int, write_log: LogWriter, tmp_path: Path
) -> None:
    path, out = tmp_path / "far" / "n0", tmp_path / "tables"
    ship(write_log(bodies(200), committed=committed), fs.LocalFileSystem(), str(path))
    words = ("tables", "--shipped", path.as_uri(), "--out", str(out))
    for _ in range(4):
        run(*words)
        assert len(list(out.glob("_shipped/*/data/*"))) <= shipped.FILES_MAX
    ship(write_log([], committed=199), fs.LocalFileSystem(), str(path))
    run(*words)
    assert len(list(out.glob("_shipped/*/data/*"))) == 1
    run("tables", "--path", str(path), "--out", str(tmp_path / "at-once"))
    assert rows_of(TableHome(str(out))) == rows_of(TableHome(str(tmp_path / "at-once")))


@pytest.mark.usefixtures("few_files")
def test_what_else_lies_beside_shipped_files_is_no_file_of_the_log(
    write_log: LogWriter, tmp_path: Path
) -> None:
    path, out = tmp_path / "far" / "n0", tmp_path / "tables"
    words = ("tables", "--shipped", path.as_uri(), "--out", str(out), "--json")
    added = []
    for count in (200, 100):
        ship(write_log(bodies(count)[1:]), fs.LocalFileSystem(), str(path))
        for name in (".00000000000000004096.Xy12", "00000000000000004096.part", "_SUCCESS"):
            (path / "data" / name).write_bytes(b"half")
        added.append(json.loads(run(*words))["entries_added"])
    assert added == [199, 99]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nowhere", "[DLEDGER_OPTION_INVALID] shipped='nowhere': no URL that Arrow opens"),
        ("strange://a/b", "[DLEDGER_OPTION_INVALID] shipped='strange://a/b': no URL"),
        ("{}/absent", "[DLEDGER_STORE_UNREADABLE] {}/absent: "),
        ("{}/empty", "data has no file from the first on; name the folder of a node"),
    ],
)
def test_a_shipped_log_that_cannot_be_read_is_one_line(
    url: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "empty" / "data").mkdir(parents=True)
    (tmp_path / "empty" / "hard-state").touch()
    at = tmp_path.as_uri()
    line = refused("tables", "--shipped", url.format(at), "--out", str(tmp_path / "out"))
    assert expected.format(at) in line
    assert line.count("\n") == 1


@pytest.mark.parametrize("scheme", ["s3", "strange"])
def test_an_error_of_a_store_shows_no_secret_of_its_url(scheme: str, tmp_path: Path) -> None:
    url = f"{scheme}://key:hush@orders/n0?scheme=http&endpoint_override=127.0.0.1:1"
    line = refused("tables", "--shipped", url, "--out", str(tmp_path / "out"))
    assert f"{scheme}://orders/n0" in line
    assert "hush" not in line


def test_a_shipped_log_is_named_without_a_folder(tmp_path: Path) -> None:
    words = ("--shipped", tmp_path.as_uri(), "--path", str(tmp_path), "--out", str(tmp_path / "o"))
    done = CliRunner().invoke(dledger_spark, ["tables", *words])
    assert done.exit_code == 2
    assert "--shipped goes without --path and --bootstrap" in done.output


def refused(*words: str) -> str:
    done = CliRunner().invoke(dledger_spark, list(words))
    assert done.exit_code == 1, done.output
    return done.output


def run(*words: str) -> str:
    done = CliRunner().invoke(dledger_spark, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout
