"""What the passes over a range have made, kept until the round of the range is committed.

A driver that is killed in a round has committed nothing of it. The next one makes the same ranges
anew, and its tasks find here which of them are done: a killed driver repeats the ranges that its
tasks were in. A range is kept by the first pass, as a folder with the rows about commands and the
state behind it, and then by the second, which only notes the files that it has written.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dledger.store.disk import OsDisk
from dledger_spark.errors import OutputFailed
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.facts.log_fold import Known
from dledger_spark.log.mark import Mark, differ
from dledger_spark.log.readable_log import ReadableLog
from dledger_spark.tables.fact_file import FileWritten
from dledger_spark.tables.table_home import range_name

_VERSION: Final = 1
_KNOWN: Final = "known.json"
_STATE: Final = "state.json"
_WRITTEN: Final = "written.json"
_ROWS: Final = ".arrow"


class KeptPass(NamedTuple):
    """What the first pass has found: what is known of the range, and the state behind it."""

    known: Known
    state: bytes


class KeptRange:
    """The folder of a range among those of its log.

    Raises OutputFailed if it cannot be written.
    """

    def __init__(self, folder: str, entries: range) -> None:
        self._entries = entries
        self._path = f"{folder}/{range_name(entries)}"

    def ordered(self, log: ReadableLog, before: str) -> KeptPass | None:
        """Return what the first pass has found that began with the `state_sum` `before`.

        None if it is not kept, began with another state, or read another log.
        """
        try:
            content = _read(f"{self._path}/{_KNOWN}")
            is_same = content["before"] == before
            there = Mark(int(content["term"]), int(content["chain_crc"]))
            known = _known_of(content["known"])
            with open(f"{self._path}/{_STATE}", "rb") as file:
                state = file.read()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not is_same:
            return None
        # The chain sum covers all entries before. Committed ones do not change, but the folder of
        # the tables may have nothing yet that shows which log it is of.
        found = log.mark(self._entries.stop - 1)
        return None if found is None or differ(found, there) else KeptPass(known, state)

    def rows(self) -> Iterator[dict[str, pa.RecordBatch]]:
        """Yield the rows about commands that the first pass has kept, by table."""
        for name in FACTS:
            path = f"{self._path}/{name}{_ROWS}"
            if os.path.exists(path):
                with pa.OSFile(path) as file, pa.ipc.open_stream(file) as batches:
                    for batch in batches:
                        yield {name: batch}

    def keep_rows(self, before: str) -> KeptRows:
        """Begin to keep a first pass; `before` is the `state_sum` of the state before."""
        return KeptRows(self._path, before)

    def written(
        self, known: Known, asked: Mapping[str, Any]
    ) -> dict[str, list[FileWritten]] | None:
        """Return the files that the second pass has written, if they are there.

        `asked` is what else they depend on. None if they are of another first pass.
        """
        try:
            content = _read(f"{self._path}/{_WRITTEN}")
            is_same = content["known"] == _sum_of_known(known) and content["asked"] == asked
            files = {
                name: [FileWritten(*one) for one in of_table]
                for name, of_table in content["files"].items()
            }
            there = all(
                os.stat(f"{asked['folders'][name]}/{one.name}").st_size == one.size
                for name, of_table in files.items()
                for one in of_table
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return files if is_same and there else None

    def keep_written(
        self, known: Known, asked: Mapping[str, Any], files: Mapping[str, list[FileWritten]]
    ) -> None:
        content = {"known": _sum_of_known(known), "asked": asked, "files": files}
        new = f"{self._path}/{uuid.uuid4()}.new"
        try:
            _write(new, json.dumps(content).encode())
            os.rename(new, f"{self._path}/{_WRITTEN}")
        except FileNotFoundError:
            pass  # this task was lost, and the round is committed without it
        except OSError as cause:
            raise OutputFailed(self._path, cause.strerror or str(cause)) from None


class KeptRows:
    """Rows about commands on their way to the folder of a range, which `end` makes."""

    def __init__(self, path: str, before: str) -> None:
        self._path = path
        self._before = before
        self._new = f"{path}.{uuid.uuid4()}.new"
        self._open = ExitStack()
        self._writers: dict[str, Any] = {}
        self._files: list[str] = []

    def add(self, rows: Mapping[str, pa.RecordBatch]) -> None:
        try:
            for name, batch in rows.items():
                if name not in self._writers:
                    self._writers[name] = self._opened(name, batch.schema)
                self._writers[name].write_batch(batch)
        except OSError as cause:
            raise OutputFailed(self._path, cause.strerror or str(cause)) from None

    def _opened(self, name: str, schema: pa.Schema) -> Any:
        os.makedirs(self._new, exist_ok=True)
        path = f"{self._new}/{name}{_ROWS}"
        self._files.append(path)
        file = self._open.enter_context(pa.OSFile(path, "wb"))
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        return self._open.enter_context(pa.ipc.new_stream(file, schema, options=options))

    def drop(self) -> None:
        self._open.close()
        shutil.rmtree(self._new, ignore_errors=True)

    def end(self, found: KeptPass, end: Mark) -> None:
        """Keep the rows with what the pass has found; `end` is the mark of the last entry."""
        content = {
            "before": self._before,
            "known": found.known,
            "term": end.term,
            "chain_crc": end.chain,
        }
        disk = OsDisk()
        try:
            self._open.close()
            os.makedirs(self._new, exist_ok=True)
            for path in self._files:
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
            _write(f"{self._new}/{_STATE}", found.state)
            _write(f"{self._new}/{_KNOWN}", json.dumps(content).encode())
            disk.sync_folder(self._new)
            shutil.rmtree(self._path, ignore_errors=True)  # of another state or log
            self._rename()
            disk.sync_folder(os.path.dirname(self._path))
        except OSError as cause:
            raise OutputFailed(self._path, cause.strerror or str(cause)) from None

    def _rename(self) -> None:
        try:
            os.rename(self._new, self._path)
        except OSError as cause:
            if cause.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self.drop()  # another attempt at the same task was quicker, with the same result


def _read(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    if not isinstance(content, dict):
        raise ValueError(path)
    return content


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _known_of(content: Any) -> Known:
    refused, lives, deletions = content
    return Known(
        [(int(first), int(last)) for first, last in refused],
        {str(topic): int(count) for topic, count in lives.items()},
        [(int(index), str(topic)) for index, topic in deletions],
    )


def state_sum(state: bytes | None, *, checksums: bool) -> str:
    """Return a sum of a state, and of what else the rows of a first pass from there depend on."""
    schemas = [(name, str(schema)) for name, schema in FACTS.items()]
    found = hashlib.sha256(repr((_VERSION, schemas, checksums)).encode())
    found.update(state or b"")
    return found.hexdigest()


def _sum_of_known(known: Known) -> str:
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()
