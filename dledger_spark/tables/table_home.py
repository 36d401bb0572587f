"""The folder that holds the tables of one or several logs.

OUT/facts/messages/            Delta tables of facts: rows that never change
OUT/derived/traffic/           Delta tables that are a query over the facts
OUT/_state/GROUP/NUMBER.json   the state of the fold behind an entry, for a later run
OUT/_passes/GROUP/RANGE/       what tasks of Spark have made of a range that is not committed yet
OUT/_shipped/URL/              files of a log that was shipped to an object store, for a while
OUT/_checkpoint/               the checkpoint of a stream that adds to the tables
OUT/_spill/                    rows on their way from Spark to a derived table
OUT/_lock                      held by the one writer
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote, unquote

from dledger.store.disk import OsDisk
from dledger_spark.errors import OutputFailed, TablesInvalid
from dledger_spark.local_path import OF_FILE_SYSTEM, tables_path

# How long replaced files are kept by default: as long as a query may take.
KEPT_HOURS: Final = 1
# A year, after which the log of a table that gets a commit a second has 31 million files.
KEPT_HOURS_MAX: Final = 8760
_LOCK: Final = "_lock"
_STATE: Final = "_state"
_PASSES: Final = "_passes"
_CHECKPOINT: Final = "_checkpoint"
_SPILL: Final = "_spill"
_SHIPPED: Final = "_shipped"
FACTS_FOLDER: Final = "facts"
DERIVED_FOLDER: Final = "derived"
_NAME: Final = re.compile(r"(\d{20})\.json")
_RANGE: Final = re.compile(r"(\d{20})-(\d{20})")
_KNOWN: Final = frozenset(
    {_LOCK, _STATE, _PASSES, _CHECKPOINT, _SPILL, _SHIPPED, FACTS_FOLDER, DERIVED_FOLDER}
)
_OF_NO_GROUP: Final = "-"  # a log of Java's has no name
# Names of groups that would be other folders, as they stand.
_NO_FOLDERS: Final = {_OF_NO_GROUP: "%2D", ".": "%2E", "..": "%2E%2E"}


class TableHome:
    """The folder, which need not exist yet.

    Files that are not part of its tables any more are kept for `kept_hours`. Raises OptionInvalid:
    Delta tables cannot be there.
    """

    def __init__(self, path: str, kept_hours: int = KEPT_HOURS) -> None:
        self.path = tables_path("out", path)
        self.kept_hours = kept_hours
        self._locked: os.stat_result | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Create the folder if necessary, and lock it for one writer.

        Raises:
            TablesInvalid: another writer has locked it, or it holds something else.
            OutputFailed: it cannot be written.
        """
        if os.path.exists(self.path) and not os.path.isdir(self.path):
            raise TablesInvalid(self.path, "is a file: name a folder")
        try:
            there = set(os.listdir(self.path)) if os.path.exists(self.path) else set()
            # Nothing is written to a folder of something else.
            if foreign := sorted(there - _KNOWN - OF_FILE_SYSTEM):
                problem = f"holds {foreign[0]!r}, which is no part of it: use a new folder"
                raise TablesInvalid(self.path, problem)
            os.makedirs(f"{self.path}/{_STATE}", exist_ok=True)
            descriptor = os.open(f"{self.path}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as cause:
            raise OutputFailed(self.path, cause.strerror or str(cause)) from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                problem = "another job writes there: let it finish, or use another folder"
                raise TablesInvalid(self.path, problem) from None
            except OSError as cause:  # some network file systems have no locks
                reason = f"it cannot be locked: {cause.strerror}"
                raise OutputFailed(self.path, reason) from None
            self._locked = os.fstat(descriptor)
            yield
        finally:
            self._locked = None
            os.close(descriptor)

    def check_held(self) -> None:
        """Check that the folder is still the one that was locked, if it is `held`.

        Raises TablesInvalid: it was moved or removed. Another writer may have the one there now.
        """
        path = f"{self.path}/{_LOCK}"
        if self._locked is None:
            return
        if not os.path.exists(path) or not os.path.samestat(os.stat(path), self._locked):
            problem = "was moved or removed while this job wrote there: start it again where it is"
            raise TablesInvalid(self.path, problem)

    def fact_path(self, table: str) -> str:
        return f"{self.path}/{FACTS_FOLDER}/{table}"

    def derived_path(self, table: str) -> str:
        return f"{self.path}/{DERIVED_FOLDER}/{table}"

    @property
    def checkpoint_path(self) -> str:
        return f"{self.path}/{_CHECKPOINT}"

    @property
    def spill_path(self) -> str:
        """The folder of rows that Spark has computed, until they are in a derived table."""
        return f"{self.path}/{_SPILL}"

    def shipped_path(self, url: str) -> str:
        """The folder of a node whose log comes from an object store."""
        name = hashlib.sha256(url.encode()).hexdigest()[:32]
        return f"{self.path}/{_SHIPPED}/{name}"

    @property
    def exists(self) -> bool:
        """Whether tables were made here."""
        return os.path.isdir(f"{self.path}/{FACTS_FOLDER}")

    def groups(self) -> list[str | None]:
        """Return the logs that have a state here."""
        folder = f"{self.path}/{_STATE}"
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return [None if name == _OF_NO_GROUP else unquote(name) for name in sorted(names)]

    def state(self, group: str | None, next_index: int) -> bytes | None:
        """Return the saved state of a log's fold behind the entry before `next_index`."""
        try:
            with open(self._state_path(group, next_index), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def save_state(self, group: str | None, next_index: int, content: bytes) -> None:
        """Save the state atomically. Raises OutputFailed, and what `check_held` does."""
        self.check_held()
        path = self._state_path(group, next_index)
        folder = os.path.dirname(path)
        try:
            os.makedirs(folder, exist_ok=True)
            with open(f"{path}.new", "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(f"{path}.new", path)
            OsDisk().sync_folder(folder)
        except OSError as cause:
            raise OutputFailed(self.path, cause.strerror or str(cause)) from None

    def drop_states_before(self, group: str | None, next_index: int) -> None:
        """Delete states that no update resumes from, and what was made of ranges before."""
        folder = self.passes_path(group)
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            match = _RANGE.fullmatch(name)
            if match is None or int(match[1]) < next_index:
                shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
        folder = os.path.dirname(self._state_path(group, 0))
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            match = _NAME.fullmatch(name)
            if match is None or int(match[1]) < next_index:
                os.unlink(f"{folder}/{name}")

    def passes_path(self, group: str | None) -> str:
        """The folder of what tasks have made of ranges that are not committed yet."""
        return f"{self.path}/{_PASSES}/{_folder_of(group)}"

    def kept_ranges(self, group: str | None, part: range) -> list[range]:
        """Return the ranges of which something is kept, and which follow one another from the
        beginning of `part` on.
        """
        folder = self.passes_path(group)
        names = os.listdir(folder) if os.path.isdir(folder) else []
        stops: dict[int, int] = {}
        for match in filter(None, map(_RANGE.fullmatch, names)):
            start, stop = int(match[1]), int(match[2]) + 1
            if stop <= part.stop:
                stops[start] = max(stop, stops.get(start, 0))
        found, at = [], part.start
        while at in stops:
            found.append(range(at, stops[at]))
            at = stops[at]
        return found

    def _state_path(self, group: str | None, next_index: int) -> str:
        return f"{self.path}/{_STATE}/{_folder_of(group)}/{next_index:020d}.json"


def range_name(entries: range) -> str:
    """Return the name of a folder in `TableHome.passes_path`."""
    return f"{entries.start:020d}-{entries.stop - 1:020d}"


def _folder_of(group: str | None) -> str:
    return _OF_NO_GROUP if group is None else _NO_FOLDERS.get(group, quote(group, safe=""))
