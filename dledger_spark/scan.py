"""The entries of a log, or the messages in them, as Arrow batches.

This needs no Spark, takes no lock, and writes nothing.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from dledger_spark.log.entry_batches import BATCH_BYTES
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import LogFolder, open_log
from dledger_spark.log.readable_log import (
    ReadableLog,
    acceptance_from,
    sound_batches,
    warn_of_unrecorded,
)
from dledger_spark.records.acceptance import COLUMNS, without
from dledger_spark.records.message_columns import message_batch
from dledger_spark.schema import ENTRIES, OF_MESSAGES, check_columns, needs_bodies


def arrow_batches(
    path: str | LogFolder,
    first: int | str | None = None,
    last: int | str | None = None,
    *,
    table: str = ENTRIES,
    columns: Sequence[str] | None = None,
    batch_bytes: int = BATCH_BYTES,
    checksums: bool = True,
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the entries first..last, or the messages in them.

    Args:
        path: the folder of a log, or the result of `log_folder.open_log`.
        first: the first entry; None for the first one kept.
        last: the last entry; None for the commit index, "end" for all, committed or not.
        table: "entries", "messages", "entry_headers" or "message_headers" (see
            `dledger_spark.schema` for the columns).
        columns: names of the wanted columns, in their order; by default all.
        batch_bytes: the bytes of the log that go into a batch.
        checksums: whether to check the two sums of each entry. Headers are always compared with
            their place and with one another.
        fail_on_data_loss: whether to raise if entries of the range are in no file, or damaged;
            otherwise these are skipped, with a warning of `EntriesLeftOut` for damaged ones.

    Warns of `UnrecordedEntries` if `last` is not given, and the folder holds entries behind the
    recorded commit index.

    Raises:
        DledgerSparkError: see `dledger_spark.errors`. All earlier batches are right.
    """
    log = FolderLog(path if isinstance(path, LogFolder) else open_log(path))
    names = check_columns(table, columns)
    entries = log.resolve(first, last)
    if last in (None, ""):
        warn_of_unrecorded([log])
    for part in log.parts(entries, fail_on_data_loss=fail_on_data_loss):
        yield from table_batches(
            log,
            part,
            table,
            names,
            batch_bytes=batch_bytes,
            checksums=checksums,
            fail_on_data_loss=fail_on_data_loss,
        )


def table_batches(
    log: ReadableLog,
    entries: range,
    table: str,
    names: Sequence[str],
    *,
    batch_bytes: int,
    checksums: bool,
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range that `ReadableLog.parts` returned.

    Judging begins with its first entry. `names` are the wanted columns; for the others see
    `arrow_batches`.
    """
    # The topics of a log of Java's brokers are not in it: its records are not judged.
    is_judged = log.group is not None and table in OF_MESSAGES
    acceptance = acceptance_from(log, entries.start) if is_judged else None
    at = entries.start
    for batch in sound_batches(
        log,
        entries,
        batch_bytes=batch_bytes,
        checksums=checksums,
        fail_on_data_loss=fail_on_data_loss,
        bodies=needs_bodies(table, names, checksums=checksums),
    ):
        if acceptance is not None and batch.column("index")[0].as_py() != at:
            acceptance.forget()
        at = batch.column("index")[-1].as_py() + 1
        if table not in OF_MESSAGES:
            yield batch.select(names)
        elif acceptance is None:
            yield message_batch(batch, names)
        else:
            records = message_batch(batch, list(dict.fromkeys((*names, *COLUMNS))))
            yield without(records, acceptance.judge(batch, records)).select(names)
