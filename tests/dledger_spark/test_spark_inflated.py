"""Compressed bodies as their producers gave them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")

from dledger_spark import inflated_bodies
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.errors import OptionInvalid, PackageMissing
from dledger_spark.inflated_bodies import inflated
from dledger_spark.scan import arrow_batches
from remoting.message.errors import CompressionMissing
from remoting.message.record import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    MAX_BODY_BYTES,
    MessageRecord,
)
from tests.dledger_spark.batch_query import source_of, table_of
from tests.dledger_spark.broker_bodies import BrokerBodies

LogWriter = Callable[..., Path]
TEXT = b"two shirts, " * 100
BOMB = zlib.compress(bytes(MAX_BODY_BYTES + 1), 9)
STORED = (
    (TEXT, 0),
    (zlib.compress(TEXT), COMPRESSED_FLAG),
    (zlib.compress(TEXT), COMPRESSED_FLAG | COMPRESSION_ZLIB),
    (lz4.frame.compress(TEXT), COMPRESSED_FLAG | COMPRESSION_LZ4),
    (zstandard.compress(TEXT), COMPRESSED_FLAG | COMPRESSION_ZSTD),
    (TEXT, COMPRESSED_FLAG),
    (BOMB, COMPRESSED_FLAG),
    (zlib.compress(TEXT)[:-8], COMPRESSED_FLAG),
    (TEXT, COMPRESSED_FLAG | COMPRESSION_TYPE_MASK),
    (b"", 0),
)
PROBLEMS = {
    5: "is not zlib",
    6: "inflates to more than 16777216 bytes",
    7: "ends early",
    8: "in a way that RocketMQ 5.3 does not know",
}


@pytest.fixture
def folder(write_log: LogWriter) -> Path:
    found = BrokerBodies()
    found.put_topic("t")
    for body, flag in STORED:
        found.message(MessageRecord(topic="t", body=body, system_flag=flag))
    return write_log(found.bodies, segment_bytes=1 << 20)


def read(folder: Path, columns: str | None = None, **options: str) -> list[dict[str, Any]]:
    source = source_of(**{"path": folder, "table": "messages", **options})
    return list(table_of(source, columns).to_pylist())


def check(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == len(STORED)
    for at, row in enumerate(rows):
        if at in PROBLEMS:
            assert row["body"] is None
            assert PROBLEMS[at] in row["body_problem"]
        else:
            assert row["body"] == (b"" if at == len(STORED) - 1 else TEXT)
            assert row["body_problem"] is None


def test_bodies_come_inflated_or_null_with_the_reason(folder: Path) -> None:
    check(read(folder, decompress="true"))
    check(read(folder, "body_problem body", decompress="true", subscribe="t"))
    assert [row["body"] for row in read(folder)] == [body for body, _ in STORED]
    assert len(read(folder, "topic", decompress="true")) == len(STORED)


def test_messages_of_a_log_of_java_come_inflated(folder: Path) -> None:
    (folder / "hard-state").unlink()
    check(read(folder, decompress="true", to="end"))


def test_show_inflates_bodies(folder: Path) -> None:
    words = ["show", "--path", str(folder), "--decompress"]
    done = CliRunner().invoke(dledger_spark, [*words, "--limit", "2"])
    head, *lines = done.stdout.splitlines()
    assert head.split("\t")[-2:] == ["body", "body_problem"]
    assert [line.split("\t")[-2][:10] for line in lines] == ["two shirts"] * 2
    done = CliRunner().invoke(dledger_spark, [*words, "--json"])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [at for at, row in enumerate(rows) if row["body_problem"]] == list(PROBLEMS)


def test_inflated_bodies_are_cut_into_batches_of_bounded_size(folder: Path) -> None:
    [batch] = arrow_batches(str(folder), table="messages")
    parts = list(inflated(batch, batch_bytes=2 * len(TEXT) - 1))
    check(pa.Table.from_batches(parts).to_pylist())
    assert [len(part) for part in parts] == [3, 2, 5]
    [whole] = inflated(batch.slice(0, 0))
    assert whole.num_rows == 0
    [row] = pa.Table.from_batches(inflated(batch.slice(1, 1), max_body_bytes=9)).to_pylist()
    assert "more than 9 bytes" in row["body_problem"]


def test_a_library_that_is_missing_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_record: MessageRecord, _max_body_bytes: int) -> bytes:
        raise CompressionMissing("LZ4", "lz4")

    monkeypatch.setattr(inflated_bodies, "body_of", missing)
    with pytest.raises(PackageMissing, match=r"lz4 is not installed: .*dledger\[compression\]"):
        read(folder, decompress="true")


def test_only_messages_are_inflated(folder: Path) -> None:
    with pytest.raises(OptionInvalid, match="add table=messages"):
        read(folder, table="entries", decompress="true")
