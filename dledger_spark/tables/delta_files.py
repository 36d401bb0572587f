"""Keeps the number of files of a Delta table bounded, however many small commits it gets.

A commit adds a file, so a stream with a commit a second would make millions. Small files are put
together; what a table no longer consists of is deleted some hours later (`TableHome.kept_hours`),
so whoever has opened a table has so long to read it; and Delta's own log is cut at a checkpoint
that old. All three leave the transactions of the table alone, which say up to which entry it is
complete. The caller holds the lock of the folder: nobody else commits meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import DeltaError

from dledger_spark.errors import TablesInvalid
from dledger_spark.local_path import files_of_delta

WRITER_PROPERTIES: Final = WriterProperties(
    compression="ZSTD",
    # Rows come in the log's order, so a query by index or time reads few groups.
    max_row_group_size=128 * 1024,
)
# A table with so many small files has them put together.
SMALL_FILES_MAX: Final = 64
SMALL_FILE_BYTES: Final = 32 * 1024 * 1024
# Their new size. Putting together holds about twice that in memory.
WHOLE_FILE_BYTES: Final = 64 * 1024 * 1024
# Commits between two of Delta's checkpoints; a reader opens as many small files of its log.
CHECKPOINT_COMMITS: Final = 64


def configuration(kept_hours: int) -> dict[str, str]:
    """The properties of a table that keeps what is replaced for so long."""
    return {
        "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
        "delta.deletedFileRetentionDuration": f"interval {kept_hours} hours",
        "delta.logRetentionDuration": f"interval {kept_hours} hours",
    }


@contextmanager
def delta_failures(path: str, problem: str) -> Iterator[None]:
    """Turn what Delta's library raises into one line, also where it aborts, as at some full disks.

    Raises:
        TablesInvalid: `problem` has happened to the table at `path`.
    """
    try:
        yield
    except (DeltaError, OSError) as error:
        raise TablesInvalid(path, f"{problem}: {error}") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the library does not export it
            raise
        raise TablesInvalid(path, f"{problem}: Delta's library gave up ({error})") from None


def keep_for(path: str, table: DeltaTable, kept_hours: int) -> None:
    """Give a table that was made with other properties those of `configuration`.

    Raises:
        TablesInvalid: the table cannot be written.
    """
    wanted = configuration(kept_hours)
    if wanted.items() <= table.metadata().configuration.items():
        return
    with delta_failures(path, "cannot be written"):
        table.alter.set_table_properties(wanted)


def put_together(path: str, table: DeltaTable, kept_hours: int) -> bool:
    """Put small files together if there are many, and delete old ones. Returns whether it did.

    If it is killed, the table is as before or as after. Files that it leaves behind are deleted by
    a later call.

    Raises:
        TablesInvalid: the table cannot be written.
    """
    with delta_failures(path, "cannot be written"):
        sizes = [os.path.getsize(file) for file in files_of_delta(path, table.file_uris())]
        if sum(size < SMALL_FILE_BYTES for size in sizes) < SMALL_FILES_MAX:
            return False
        table.optimize.compact(
            target_size=WHOLE_FILE_BYTES,
            max_concurrent_tasks=1,  # each holds a file
            writer_properties=WRITER_PROPERTIES,
        )
    delete_old_files(path, table, kept_hours)
    return True


def delete_old_files(path: str, table: DeltaTable, kept_hours: int) -> None:
    """Delete the files that the table has not consisted of for so long.

    Raises:
        TablesInvalid: the folder cannot be written.
    """
    with delta_failures(path, "cannot be written"):
        # "full" finds those of killed writers as well, which the log does not mention.
        table.vacuum(kept_hours, dry_run=False, enforce_retention_duration=False, full=True)
