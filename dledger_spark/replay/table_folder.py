"""The folder that a replay writes: one Parquet file for each range of entries and each table.

    OUT/entries/00000000000000000000-00000000000000099999.broker-a.parquet
    OUT/messages/00000000000000000000-00000000000000099999.broker-a.parquet

A file's name has the entries that it covers, both ends included, and their group, unless the log is
Java's and has no name. Files of a table never overlap. A file is written under a name that readers
skip, synced, and renamed when it is complete. So the names alone show which entries are done, and a
replay that was killed writes the missing files.

Two locks end with the process that holds them. `_driver.lock` allows one replay at a time.
`_publish.lock` is held while files are renamed. Its holder first reads `_run`, the name of the
replay that may do so. So a worker that outlives its killed driver cannot add files to the output of
the next replay.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dledger_spark.errors import OutputFailed, OutputInvalid, RunReplaced
from dledger_spark.local_path import OF_FILE_SYSTEM
from dledger_spark.log.mark import Mark
from dledger_spark.schema import MESSAGES, SCHEMAS, TABLES

# Notes in each file: its log, and its last entry.
GROUP: Final = b"dledger.group"
LAST_TERM: Final = b"dledger.last_term"
LAST_CHAIN: Final = b"dledger.last_chain_crc"
# Only in files of messages: the state that judges later records (`acceptance.Acceptance.encode`).
ACCEPTANCE: Final = b"dledger.acceptance"
_SUFFIX: Final = ".parquet"
_UNFINISHED: Final = ".unfinished"
_NAME: Final = re.compile(r"(\d{20})-(\d{20})(?:\.(.+))?\.parquet")
_RUN: Final = "_run"
_DRIVER_LOCK: Final = "_driver.lock"
_PUBLISH_LOCK: Final = "_publish.lock"
_RUN_NAME_BYTES: Final = 16


class Published(NamedTuple):
    """One file of a table, and the entries of a group that it covers. None: a log of Java's."""

    path: str
    entries: range
    group: str | None = None


class FileNotes(NamedTuple):
    """The notes of a file about its log.

    Attributes:
        group: the log's group; None if it is unknown, as in a log of Java's.
        last: the mark of the last entry that the file covers.
        acceptance: the state that judges later records; empty if records are not judged.
    """

    group: str | None
    last: Mark
    acceptance: bytes = b""


@contextmanager
def replay_run(out: str) -> Iterator[str]:
    """Lock the output folder for one replay, and create it if necessary; yield the replay's name.

    Removes unfinished files of a killed replay.

    Raises:
        OutputInvalid: another replay writes there, or the folder holds something else.
        OutputFailed: the folder cannot be written.
    """
    out = os.path.abspath(out)
    if os.path.exists(out) and not os.path.isdir(out):
        raise OutputInvalid(out, "is a file: name a folder")
    with _failures(out):
        os.makedirs(out, exist_ok=True)
    foreign = sorted(
        set(os.listdir(out)) - {*TABLES, _RUN, _DRIVER_LOCK, _PUBLISH_LOCK} - OF_FILE_SYSTEM
    )
    if foreign:
        raise OutputInvalid(out, f"holds {foreign[0]!r}, which no replay wrote: use a new folder")
    with _lock(f"{out}/{_DRIVER_LOCK}", wait=False):
        run = os.urandom(_RUN_NAME_BYTES).hex()
        with _failures(out):
            publish_lock = _lock(f"{out}/{_PUBLISH_LOCK}", wait=True)
            with publish_lock, open(f"{out}/{_RUN}", "w", encoding="ascii") as file:
                file.write(run)
                file.flush()
            for table in TABLES:
                os.makedirs(f"{out}/{table}", exist_ok=True)
                for name in os.listdir(f"{out}/{table}"):
                    if name.endswith(_UNFINISHED):
                        os.unlink(f"{out}/{table}/{name}")
        yield run


def published(out: str, table: str) -> list[Published]:
    """Return the files of a table, by group, in the order of their entries.

    Raises:
        OutputInvalid: two of them overlap.
    """
    folder = f"{out}/{table}"
    found = []
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        match = _NAME.fullmatch(name)
        if match:
            group = None if match[3] is None else unquote(match[3])
            entries = range(int(match[1]), int(match[2]) + 1)
            found.append(Published(f"{folder}/{name}", entries, group))
    found.sort(key=lambda file: (file.group or "", file.entries.start))
    for before, file in pairwise(found):
        if file.group == before.group and file.entries.start < before.entries.stop:
            problem = f"covers entries that {before.path} covers: remove one, or the whole output"
            raise OutputInvalid(file.path, problem)
    return found


def published_of(out: str, table: str, group: str | None) -> list[Published]:
    """Return the files of a table that cover entries of one group, in their order."""
    return [file for file in published(out, table) if file.group == group]


def missing(files: list[Published], entries: range) -> list[range]:
    """Return the parts of `entries` that no file of a group covers."""
    gaps = []
    start = entries.start
    for file in files:
        if start < min(file.entries.start, entries.stop):
            gaps.append(range(start, min(file.entries.start, entries.stop)))
        start = max(start, file.entries.stop)
    if start < entries.stop:
        gaps.append(range(start, entries.stop))
    return gaps


def file_path(out: str, table: str, entries: range, group: str | None) -> str:
    """Return the path of the file that covers a range of a group's log."""
    of_group = "" if group is None else f".{quote(group, safe='')}"
    return f"{out}/{table}/{entries.start:020d}-{entries.stop - 1:020d}{of_group}{_SUFFIX}"


def file_notes(file: Published) -> FileNotes:
    """Read the notes of a file. Raises OutputInvalid: the file was not written by a replay."""
    with _replay_file(file):
        notes = pq.read_metadata(file.path).metadata or {}
        group = notes.get(GROUP, b"").decode() or None
        last = Mark(int(notes[LAST_TERM]), int(notes[LAST_CHAIN]))
        return FileNotes(group, last, notes.get(ACCEPTANCE, b""))


def check_columns_of(file: Published, table: str) -> None:
    """Check that a file has the columns of this version.

    Raises:
        OutputInvalid: it has other columns than the table, or was not written by a replay.
    """
    with _replay_file(file):
        names = pq.read_schema(file.path).names
    if names != SCHEMAS[table].names:
        problem = f"does not have the columns that the table of {table} has now: use a new folder"
        raise OutputInvalid(file.path, problem)


def row_of(file: Published, index: int) -> dict[str, Any] | None:
    """Return the row of one entry in a file of the table of entries; None if the file lacks it.

    Raises:
        OutputInvalid: the file was not written by a replay.
    """
    with _replay_file(file), pq.ParquetFile(file.path) as parquet:
        column = parquet.schema_arrow.names.index("index")
        for number in range(parquet.num_row_groups):
            bounds = parquet.metadata.row_group(number).column(column).statistics
            if bounds.min <= index <= bounds.max:
                rows = parquet.read_row_group(number)
                found: list[dict[str, Any]] = rows.filter(pc.field("index") == index).to_pylist()
                return found[0] if found else None
    return None


@contextmanager
def _replay_file(file: Published) -> Iterator[None]:
    """Turn any error while a file of the output is read into OutputInvalid."""
    try:
        yield
    except (OSError, KeyError, ValueError, AttributeError, pa.ArrowException) as cause:
        problem = f"is no file of a replay ({cause!r:.80}): remove it, or use a new folder"
        raise OutputInvalid(file.path, problem) from None


@contextmanager
def _failures(out: str) -> Iterator[None]:
    """Turn errors of the operating system into OutputFailed."""
    try:
        yield
    except OSError as cause:
        raise OutputFailed(out, cause.strerror or str(cause)) from None


class RangeFiles:
    """The files of one range while they are written, as a context manager.

    `run` is the name of the replay, from `replay_run`. Each of `tables` gets a file.
    """

    def __init__(
        self, out: str, run: str, entries: range, tables: tuple[str, ...], group: str | None
    ) -> None:
        self._out = out
        self._run = run
        self._names = {table: file_path(out, table, entries, group) for table in tables}
        # Each attempt at a task has names of its own.
        mark = f".{entries.start}-{os.getpid()}-{os.urandom(4).hex()}{_UNFINISHED}"
        self._unfinished = {table: f"{out}/{table}/{mark}" for table in tables}
        self._writers: dict[str, Any] = {}

    def __enter__(self) -> RangeFiles:
        with _failures(self._out):
            for table, path in self._unfinished.items():
                self._writers[table] = pq.ParquetWriter(path, SCHEMAS[table], compression="zstd")
        return self

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Add rows to a table's file. Raises OutputFailed."""
        with _failures(self._out):
            self._writers[table].write_batch(batch)

    def publish(self, notes: FileNotes) -> None:
        """Finish the files and rename them.

        Raises:
            RunReplaced: another replay has begun meanwhile.
            OutputFailed: the folder cannot be written.
        """
        with _failures(self._out):
            for table, writer in self._writers.items():
                written = {
                    GROUP: (notes.group or "").encode(),
                    LAST_TERM: str(notes.last.term).encode(),
                    LAST_CHAIN: str(notes.last.chain).encode(),
                }
                if table == MESSAGES:
                    written[ACCEPTANCE] = notes.acceptance
                writer.add_key_value_metadata(written)
                writer.close()
                _sync(self._unfinished[table])
            with _lock(f"{self._out}/{_PUBLISH_LOCK}", wait=True):
                with open(f"{self._out}/{_RUN}", encoding="ascii") as file:
                    if file.read() != self._run:
                        raise RunReplaced(self._out)
                for table, path in self._names.items():
                    os.rename(self._unfinished[table], path)
            for table in self._names:
                _sync(f"{self._out}/{table}")

    def __exit__(self, *error: object) -> None:
        for table, writer in self._writers.items():
            try:
                writer.close()
            except OSError:
                # If writing the file failed, closing it fails, too: one error is enough.
                if error[0] is None:
                    raise
            finally:
                if os.path.exists(self._unfinished[table]):
                    os.unlink(self._unfinished[table])


@contextmanager
def _lock(path: str, *, wait: bool) -> Iterator[None]:
    """Hold a lock that ends with this process."""
    with _failures(os.path.dirname(path)):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            problem = "another replay writes there: let it finish, or use another folder"
            raise OutputInvalid(os.path.dirname(path), problem) from None
        yield
    finally:
        os.close(descriptor)


def _sync(path: str) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
