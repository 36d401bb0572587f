"""Keeps the number of files of a Delta table bounded, however many small commits it gets.

A commit adds a file, so a stream with a commit a second would make millions. Small files are
compacted; files that are not part of the table any more are deleted some hours later
(`TableHome.kept_hours`), so that programs can read a table that they have opened; and Delta's own
log is cut at a checkpoint of that age. All three keep the transactions of the table, which record
up to which entry it is complete. The caller holds the lock of the folder, so no other process
commits.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import DeltaError

from dledger_spark.errors import DledgerSparkError, TablesInvalid
from dledger_spark.local_path import files_of_delta
from dledger_spark.native_stderr import without_panics
from dledger_spark.tables.table_home import FACTS_FOLDER

WRITER_PROPERTIES: Final = WriterProperties(
    compression="ZSTD",
    # Rows come in the log's order, so a query by index or time reads few groups.
    max_row_group_size=128 * 1024,
)
# With so many small files a table is compacted.
SMALL_FILES_MAX: Final = 64
SMALL_FILE_BYTES: Final = 32 * 1024 * 1024
# The size of compacted files. Compaction holds about twice that in memory.
WHOLE_FILE_BYTES: Final = 64 * 1024 * 1024
# Commits between two of Delta's checkpoints; a reader opens as many small files of its log.
CHECKPOINT_COMMITS: Final = 64
# A disk with less room may be the reason why a write failed: a file takes up to WHOLE_FILE_BYTES.
_FULL_BYTES: Final = 64 * 1024 * 1024
# What to do about a table that cannot be read: facts come from the log, all else from the facts.
_OF_FACTS: Final = "make the tables anew from the log, in a new folder"
_OF_DERIVED: Final = "remove this table's folder, and `dledger-spark tables` makes it anew"
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_CAUSES: Final = re.compile(r"\s*\n\s*(?:↳\s*)?")


def configuration(kept_hours: int) -> dict[str, str]:
    """Return the properties of a table that keeps replaced files for some hours."""
    return {
        "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
        "delta.deletedFileRetentionDuration": f"interval {kept_hours} hours",
        "delta.logRetentionDuration": f"interval {kept_hours} hours",
    }


@contextmanager
def delta_failures(path: str, problem: str) -> Iterator[None]:
    """Turn errors and panics of Delta's library, as at some full disks, into TablesInvalid."""
    try:
        with without_panics():
            yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise TablesInvalid(path, f"{problem}: {_on_one_line(str(error))}{_room(path)}") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the library does not export it
            raise
        gave_up = f"{problem}: Delta's library gave up ({error}){_room(path)}"
        raise TablesInvalid(path, gave_up) from None


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn errors while a table of a tables' folder is read into TablesInvalid with a remedy."""
    try:
        with delta_failures(path, "cannot be read"):
            yield
    except TablesInvalid as failure:
        raise TablesInvalid(path, f"{failure.problem}: {remedy_of(path)}") from None


def remedy_of(path: str) -> str:
    """Return what to do about a table of a tables' folder that cannot be read."""
    is_of_facts = os.path.basename(os.path.dirname(path)) == FACTS_FOLDER
    return _OF_FACTS if is_of_facts else _OF_DERIVED


def table_at(path: str) -> DeltaTable | None:
    """Open a table; None: there is none, perhaps because its first commit failed or was killed.

    Raises TablesInvalid.
    """
    if not os.path.isdir(f"{path}/_delta_log"):
        return None
    with reading(path):
        return DeltaTable(path) if DeltaTable.is_deltatable(path) else None


def lost_file(path: str, table: DeltaTable) -> str | None:
    """Return the name of a file of a table that is gone or has another size; None if all are there.

    Raises TablesInvalid.
    """
    with reading(path):
        files = pa.table(table.get_add_actions()).select(["path", "size_bytes"]).to_pylist()
        for file in files:
            [whole] = files_of_delta(path, [file["path"]])
            if not os.path.exists(whole) or os.path.getsize(whole) != file["size_bytes"]:
                return str(file["path"])
    return None


def require_sound(files: Iterable[str]) -> None:
    """Read all rows of Parquet files of a table. Raises TablesInvalid: one is damaged."""
    for path in files:
        with reading(os.path.dirname(path)), pq.ParquetFile(path) as file:
            for _rows in file.iter_batches():
                pass


def require_files(path: str, table: DeltaTable) -> None:
    """Check that the files of a table are there. Raises TablesInvalid."""
    if (name := lost_file(path, table)) is not None:
        raise TablesInvalid(path, f"its file {name} is gone or cut short: {remedy_of(path)}")


class Rows:
    """Batches on their way to a table: a few are in memory at once.

    Delta's writer asks for them, and keeps only the text of an error of theirs.

    Attributes:
        count: the number of rows so far.
    """

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.count = 0
        self._failure: DledgerSparkError | None = None
        self._batches = batches
        self.reader = pa.RecordBatchReader.from_batches(schema, self._counted())

    def _counted(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                self.count += len(batch)
                yield batch
        except DledgerSparkError as failure:
            self._failure = failure
            raise

    @contextmanager
    def written_to(self, path: str) -> Iterator[None]:
        """Raise the error of the batches, if there was one; else do as `delta_failures`."""
        try:
            with delta_failures(path, "cannot be written"):
                yield
        except TablesInvalid:
            if self._failure is not None:
                raise self._failure from None
            raise


def _on_one_line(text: str) -> str:
    """Return a text of Delta's library, which shows causes on lines with coloured arrows."""
    plain = _COLOUR.sub("", text)
    return ": ".join(part.strip() for part in _CAUSES.split(plain) if part.strip())


def _room(path: str) -> str:
    """Return what to do if the disk of a path is full; else nothing."""
    if not path.startswith("/"):
        return ""  # a table in an object store
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    free = shutil.disk_usage(path).free
    if free >= _FULL_BYTES:
        return ""
    return (
        f"; {free // 1024} KiB of the disk are free: make room, then start the same command again"
    )


def keep_for(path: str, table: DeltaTable, kept_hours: int) -> None:
    """Give an older table the properties of `configuration`. Raises TablesInvalid."""
    wanted = configuration(kept_hours)
    if wanted.items() <= table.metadata().configuration.items():
        return
    with delta_failures(path, "cannot be written"):
        table.alter.set_table_properties(wanted)


def compact(path: str, table: DeltaTable, kept_hours: int) -> bool:
    """Compact small files if there are many, and delete old files; return whether it did.

    If it is killed, the table is as before or as after. A later call deletes files that it leaves
    behind. Raises TablesInvalid.
    """
    with delta_failures(path, "cannot be written"):
        sizes = pa.table(table.get_add_actions()).column("size_bytes").to_pylist()
    if sum(size < SMALL_FILE_BYTES for size in sizes) < SMALL_FILES_MAX:
        return False
    require_files(path, table)
    with delta_failures(path, "cannot be written"):
        table.optimize.compact(
            target_size=WHOLE_FILE_BYTES,
            max_concurrent_tasks=1,  # each holds a file
            writer_properties=WRITER_PROPERTIES,
        )
    delete_old_files(path, table, kept_hours)
    return True


def delete_old_files(path: str, table: DeltaTable, kept_hours: int) -> None:
    """Delete files that have not been part of the table for some hours. Raises TablesInvalid."""
    with delta_failures(path, "cannot be written"):
        # "full" also finds files of killed writers, which are not in Delta's log.
        table.vacuum(kept_hours, dry_run=False, enforce_retention_duration=False, full=True)
