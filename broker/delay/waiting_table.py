"""The waiting delayed messages in the order of their times: on disk, as there may be millions.

The table is part of the folded state, and no more durable than the rest of it: each start makes it
again, from the snapshot and the log after it. So nothing is ever synced, and a file that a crash
has left is deleted.
"""

import contextlib
import os
import sqlite3
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from dledger import DiskFailed
from dledger.system_refusals import of_sqlite

# Changes between two commits. A commit writes some pages of the write-ahead log; a snapshot commits
# first.
_CHANGES_PER_COMMIT: Final = 4096

_SCHEMA: Final = (
    # Log positions are unique. An index holds the primary key after its own columns, so this one
    # is in the order of time and then of position.
    "CREATE TABLE waiting (position INTEGER PRIMARY KEY, due_ms INTEGER NOT NULL, size INTEGER)",
    "CREATE INDEX by_due ON waiting (due_ms)",
)


class Waiting(NamedTuple):
    """A waiting message.

    Attributes:
        position: where its record begins in the log.
        due_ms: when it is to be delivered, milliseconds since 1970.
        size: bytes of the record.
    """

    position: int
    due_ms: int
    size: int


class WaitingTable:
    """The waiting delayed messages. Every method may raise DiskFailed.

    Args:
        folder: for the table's file; None keeps it in memory.

    Attributes:
        earliest_added_ms: the smallest due time of the messages added since it was last set.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._path = ":memory:"
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
            descriptor, self._path = tempfile.mkstemp(".sqlite", "delayed-", folder)
            os.close(descriptor)
        self._database = self._connect()
        # Also for states that are never closed.
        self._end = weakref.finalize(self, _end, self._database, self._path)
        self._changes = 0  # since the last commit
        self._count = 0
        self.earliest_added_ms = 0
        try:
            self._run("PRAGMA journal_mode = WAL")
            self._run("PRAGMA synchronous = OFF")
            for statement in _SCHEMA:
                self._run(statement)
        except DiskFailed:
            self.close()
            raise

    def __len__(self) -> int:
        return self._count

    def __contains__(self, position: int) -> bool:
        return bool(self._run("SELECT 1 FROM waiting WHERE position = ?", position))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WaitingTable) and list(self.captured()) == list(other.captured())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        first = self._read("SELECT * FROM waiting ORDER BY due_ms, position LIMIT 8")
        return f"<{self._count} waiting messages, first {first}>"

    def add(self, rows: Iterable[Waiting]) -> None:
        rows = list(rows)
        self._change("INSERT INTO waiting VALUES (?, ?, ?)", rows)
        self._count += len(rows)
        self.earliest_added_ms = min([self.earliest_added_ms, *[row.due_ms for row in rows]])

    def remove(self, position: int) -> Waiting | None:
        """Remove a message and return it, or None if it does not wait."""
        found = self.get(position)
        if found is not None:
            self._change("DELETE FROM waiting WHERE position = ?", [(position,)])
            self._count -= 1
        return found

    def get(self, position: int) -> Waiting | None:
        found = self._read("SELECT * FROM waiting WHERE position = ?", position)
        return found[0] if found else None

    def due(self, now_ms: int, from_position: int, limit: int) -> list[Waiting]:
        """Return up to `limit` due messages at or after a position, the oldest first."""
        return self._read(
            "SELECT * FROM waiting WHERE due_ms <= ? AND position >= ?"
            " ORDER BY due_ms, position LIMIT ?",
            *(now_ms, from_position, limit),
        )

    def next_due_ms(self, after_ms: int) -> int | None:
        """Return the first time after `after_ms` at which a message is due; None if none is."""
        return self._number("SELECT min(due_ms) FROM waiting WHERE due_ms > ?", after_ms)

    def due_at(self, due_ms: int, limit: int) -> list[Waiting]:
        """Return up to `limit` messages that are due at a time, by position."""
        return self._read(
            "SELECT * FROM waiting WHERE due_ms = ? ORDER BY position LIMIT ?", due_ms, limit
        )

    def first_position(self) -> int | None:
        """Return the first log position of a message; None if none waits."""
        return self._number("SELECT min(position) FROM waiting")

    def before(self, position: int, limit: int) -> list[Waiting]:
        """Return up to `limit` messages before a log position, by position."""
        return self._read(
            "SELECT * FROM waiting WHERE position < ? ORDER BY position LIMIT ?", position, limit
        )

    def captured(self) -> Iterator[Waiting]:
        """Return all messages as of the call, whatever changes while they are taken, in
        any thread.
        """
        return map(Waiting._make, self.captured_rows())

    def captured_rows(self) -> Iterator[tuple[int, int, int]]:
        """Return plain tuples as `captured`: of a million messages a snapshot takes little more
        than half as long.
        """
        self._commit()
        if self._path == ":memory:":
            return iter(self._run("SELECT * FROM waiting ORDER BY position"))
        rows = self._captured()
        next(rows)  # begins a read transaction on the present rows
        return rows

    def close(self) -> None:
        self._end()

    def _captured(self) -> Iterator[tuple[int, int, int]]:
        database = self._connect()
        try:
            database.execute("BEGIN")
            cursor = database.execute("SELECT * FROM waiting ORDER BY position")
            first = cursor.fetchone()
            yield 0, 0, 0  # dropped by `captured_rows`
            if first is not None:
                yield first
            yield from cursor
        except sqlite3.Error as error:
            raise self._failed(error) from error
        finally:
            database.close()

    def _connect(self) -> sqlite3.Connection:
        # A snapshot is written in another thread, one at a time.
        return sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)

    def _change(self, statement: str, rows: list[Any]) -> None:
        if not self._changes:
            self._run("BEGIN")
        try:
            self._database.executemany(statement, rows)
        except sqlite3.Error as error:
            raise self._failed(error) from error
        self._changes += len(rows)
        if self._changes >= _CHANGES_PER_COMMIT:
            self._commit()

    def _commit(self) -> None:
        if self._changes:
            self._run("COMMIT")
            self._changes = 0

    def _number(self, statement: str, *values: int) -> int | None:
        found: int | None = self._run(statement, *values)[0][0]
        return found

    def _read(self, statement: str, *values: int) -> list[Waiting]:
        return [Waiting._make(row) for row in self._run(statement, *values)]

    def _run(self, statement: str, *values: int) -> list[Any]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> DiskFailed:
        code = getattr(error, "sqlite_errorcode", None)  # errors of this module's own have none
        return DiskFailed("change", self._path, of_sqlite(code, str(error)))


def _end(database: sqlite3.Connection, path: str) -> None:
    database.close()
    if path != ":memory:":
        for end in ("", "-wal", "-shm"):
            # On a disk that has become read-only the files stay; the next start removes the folder.
            with contextlib.suppress(OSError):
                os.unlink(path + end)
