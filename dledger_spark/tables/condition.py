"""How fresh the tables of a folder are, and how far behind their logs. This only reads."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from dledger_spark.errors import OffsetUnreadable
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.log.mark import UNKNOWN
from dledger_spark.log.readable_log import ReadableLog
from dledger_spark.query.stream_offset import decode_offset
from dledger_spark.tables.catalog import CatalogTable, entries_of, mark_in
from dledger_spark.tables.delta_files import delta_failures
from dledger_spark.tables.fact_table import app_of
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.update import check_mark


class TableCondition(NamedTuple):
    """One table.

    Attributes:
        name: its name.
        kind: "facts" or "derived".
        rows: the number of rows.
        files: the number of its Parquet files.
        size_bytes: their size.
        version: Delta's version.
        changed_ms: when it was last written, in milliseconds since 1970.
    """

    name: str
    kind: str
    rows: int
    files: int
    size_bytes: int
    version: int
    changed_ms: int


class LogCondition(NamedTuple):
    """What the tables have of one log.

    Attributes:
        raft_group: the group of the log; None for a log of Java's.
        entries: the entry behind those that all tables have.
        planned: the same of the last finished batch of the stream; None if there is none.
        committed: the entry behind those of the log itself; None if it is not known, as that of a
            log that was not looked at.
        behind: the number of committed entries that are not in the tables; None if that is not
            known.
    """

    raft_group: str | None
    entries: int
    planned: int | None
    committed: int | None
    behind: int | None


def table_conditions(tables: Iterable[CatalogTable]) -> list[TableCondition]:
    """Return the condition of each table. Raises TablesInvalid."""
    found = []
    for one in tables:
        with delta_failures(one.name, "cannot be read"):
            actions: Any = one.table.get_add_actions(flatten=True)
            files = pa.table(actions).select(["num_records", "size_bytes"]).to_pylist()
            changed_ms = max((entry["timestamp"] for entry in one.table.history(1)), default=0)
            found.append(
                TableCondition(
                    one.name,
                    "facts" if one.name in FACTS else "derived",
                    sum(file["num_records"] or 0 for file in files),
                    len(files),
                    sum(file["size_bytes"] for file in files),
                    one.table.version(),
                    changed_ms,
                )
            )
    return found


def log_conditions(
    home: TableHome, tables: Iterable[CatalogTable], logs: Iterable[ReadableLog]
) -> list[LogCondition]:
    """Return the condition of each log of the tables, and of those that are given.

    Raises TablesInvalid, also for a log that is not the one of the tables: it has nothing of what
    they have, however few entries seem to be behind.
    """
    entries = entries_of(tables)
    given = {log.group: log for log in logs}
    planned = _planned(home)
    found = []
    for group in sorted({*home.groups(), *given}, key=lambda name: name or ""):
        there = entries.table.transaction_version(app_of(group)) or 0
        committed, behind = None, None
        log = given.get(group)
        if log is not None and log.committed is not None:
            last = min(there - 1, log.committed)
            check_mark(home, log, last, mark_in(entries, group, last) or UNKNOWN)
            committed = log.committed + 1
            behind = max(0, committed - max(there, log.first_index))
        found.append(LogCondition(group, there, planned.get(group or ""), committed, behind))
    return found


def _planned(home: TableHome) -> dict[str, int]:
    """Return where the last finished batch of a stream ends, by group, from Spark's checkpoint."""
    try:
        names = os.listdir(f"{home.checkpoint_path}/commits")
    except OSError:
        return {}  # no stream
    done = [int(name) for name in names if name.isdigit()]
    # Spark may be about to replace the file.
    return (ends_of_batch(home, max(done)) if done else None) or {}


def ends_of_batch(home: TableHome, number: int) -> dict[str, int] | None:
    """Return the entries behind a batch of a stream, by group, as Spark has planned it.

    None if its checkpoint is not a file here.
    """
    try:
        text = Path(home.checkpoint_path, "offsets", str(number)).read_text("utf-8")
        offset = decode_offset(json.loads(text.splitlines()[-1]))
    except (OSError, ValueError, IndexError, OffsetUnreadable):
        return None
    return {group: at.next for group, at in offset.items()}
