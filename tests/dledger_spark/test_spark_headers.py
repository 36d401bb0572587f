"""Tables of headers have the rows of whole tables, without what is expensive to decode."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")

from dledger.store.store_config import StoreConfig
from dledger_spark.entries.entry_columns import HEADER_BYTES
from dledger_spark.errors import LogDamaged
from dledger_spark.scan import arrow_batches
from dledger_spark.schema import SCHEMAS
from tests.dledger_spark.batch_query import source_of, table_of
from tests.dledger_spark.broker_script import ScriptedLog, random_step
from tests.dledger_spark.entry_writer import write_entries
from tests.dledger_spark.queue_writer import write_queues

CONFIG = StoreConfig(1 << 16, 1024, max_body_bytes=1 << 14, spare_segments=0)
HEADERS = {"entry_headers": "entries", "message_headers": "messages"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a node with a random log, whose consume queues have a part of it."""
    chance = random.Random(11)
    log = ScriptedLog()
    log.run([random_step(chance) for _ in range(200)])
    base = tmp_path_factory.mktemp("headers")
    written = write_entries(base, log.entries, CONFIG)
    write_queues(base, log.entries, 120).close()
    return written


def asked(folder: Path, **options: str) -> pa.Table:
    """What the source gives, in the log's order."""
    found: Any = table_of(source_of(path=folder, **options))
    order = ["index", "physical_offset" if "physical_offset" in found.schema.names else "pos"]
    return found.sort_by([(name, "ascending") for name in order])


@pytest.mark.parametrize("checksums", ["true", "false"])
@pytest.mark.parametrize("options", [{}, {"from": "40", "to": "150"}])
@pytest.mark.parametrize("table", HEADERS)
def test_a_table_of_headers_has_the_rows_of_the_whole_table(
    table: str, options: dict[str, str], checksums: str, folder: Path
) -> None:
    whole = asked(folder, table=HEADERS[table], **options)
    found = asked(folder, table=table, checksums=checksums, **options)
    assert found.schema.names == SCHEMAS[table].names
    assert len(found) > 40
    assert found.equals(whole.select(found.schema.names))


def test_headers_of_some_topics_are_those_of_their_messages(folder: Path) -> None:
    found = asked(folder, table="message_headers", subscribe="A")
    whole = asked(folder, table="messages", subscribe="A")
    assert len(found)
    assert found.equals(whole.select(found.schema.names))


def test_batches_without_spark_have_the_same_headers(folder: Path) -> None:
    for table, whole in HEADERS.items():
        names = SCHEMAS[table].names
        found = list(arrow_batches(str(folder), table=table))
        assert found == list(arrow_batches(str(folder), table=whole, columns=names))


@pytest.mark.parametrize(
    ("place", "readable"),
    [
        (HEADER_BYTES + 3, {"entry_headers"}),  # in the body
        (15, set()),  # in the header: the index
        (38, set()),  # in the header: the chain sum
    ],
)
def test_damage_of_a_body_does_not_concern_the_headers_of_entries(
    place: int, readable: set[str], tmp_path: Path
) -> None:
    chance = random.Random(12)
    log = ScriptedLog()
    log.run([random_step(chance) for _ in range(60)])
    damaged = write_entries(tmp_path, log.entries, CONFIG)
    [row] = [one for one in asked(damaged).to_pylist() if one["index"] == 30]
    file = damaged / "data" / f"{0:020d}"
    content = bytearray(file.read_bytes())
    content[row["pos"] + place] ^= 1
    file.write_bytes(content)
    for table in SCHEMAS:
        if table in readable:
            assert len(asked(damaged, table=table)) == len(log.entries)
        else:
            with pytest.raises(LogDamaged, match=r"entry 30\b"):
                asked(damaged, table=table)
