"""The changes that a state machine reports to clients that watch it. Pure.

The machine has an attribute `changes`, and reports there in `apply` what each entry changes:

    self.changes = dledger.Changes()
    ...
    self.changes.set(entry.index, ("prices", "tea"), 3)

A report never raises: `apply` does the same with watchers and without. A change that cannot be
kept (its path is too long, its value is not plain) is a gap in the history: watches begin anew
behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol, runtime_checkable

import msgpack

PathPart = str | bytes | int
Path = tuple[PathPart, ...]

# A path names an object, a key in it, and what the key holds: more parts are a mistake.
MAX_PATH_PARTS: Final = 16
# The longest name of a ready-made object and its longest key fit, in msgpack.
MAX_PATH_BYTES: Final = 8 * 1024

# Limits of one entry, whose changes are all in one answer: a node looks through them in some
# milliseconds, and their bytes fit into a frame, which holds 5 MiB.
MAX_ENTRY_CHANGES: Final = 10_000
MAX_ENTRY_BYTES: Final = 4 * 1024 * 1024

# Memory of a change beside its bytes in msgpack: tuples, numbers and short texts.
CHANGE_OVERHEAD_BYTES: Final = 400

# In msgpack: a new value of a path is [index, path, value], a deletion [index, path].
_SET, _DELETED = b"\x93", b"\x92"


class PackedValue(bytes):
    """A value that is encoded as msgpack already."""


class Change(NamedTuple):
    """One change. `row` is all of it in msgpack; `gone` means that the path and all below it was
    deleted.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    path: Path
    row: bytes
    gone: bool


@runtime_checkable
class Watchable(Protocol):
    """A state machine that shows its present state to watches.

    So a watch begins without a gap even if the changes that it asks for are not kept any more.
    """

    def watched(self, path: Path) -> Iterable[tuple[Path, object]]:
        """Yield the present state under a path: each whole path with its value.

        Called in the node's thread between two applies, and read to its end there, up to the limit
        of one answer (16 000 values, 4 MiB).
        """
        ...


class Changes:
    """Collects the changes of a state machine, entry by entry. Nothing is kept without a node."""

    def __init__(self) -> None:
        self._pending = _Pending()
        self._prefix: Path = ()

    def set(self, index: int, path: Iterable[PathPart], value: object) -> None:
        """Report that the entry at `index` gave the path this value.

        Args:
            index: of the entry that is being applied.
            path: texts, bytes and integers, 16 parts and 8 KiB at most.
            value: a plain value (None, bool, int, float, str, bytes, a list, a dict). It is encoded
                at once, so that later changes of a list do not show.
        """
        try:
            packed: bytes = msgpack.packb(value)
        except (TypeError, ValueError, OverflowError) as error:
            self._pending.lose(index, f"a value that is not plain ({error})")
            return
        self.set_packed(index, path, packed)

    def set_packed(self, index: int, path: Iterable[PathPart], packed: bytes) -> None:
        """Report a new value of the path that is msgpack already."""
        self._tell(index, path, _SET, packed)

    def delete(self, index: int, path: Iterable[PathPart]) -> None:
        """Report that the entry at `index` removed the path, and all paths that begin with it."""
        self._tell(index, path, _DELETED, b"")

    def under(self, *parts: PathPart) -> Changes:
        """Return an object for a part of the machine: its paths begin with `parts` and are reported
        here.
        """
        below = Changes()
        below._pending, below._prefix = self._pending, (*self._prefix, *parts)
        return below

    def _tell(self, index: int, path: Iterable[PathPart], kind: bytes, value: bytes) -> None:
        try:
            if type(index) is not int:
                raise TypeError(f"an index that is {index!r:.40}")
            whole = (*self._prefix, *checked_path(path))
            packed = packed_path(whole)
            row = b"".join((kind, msgpack.packb(index), packed, value))
        except (TypeError, ValueError, OverflowError) as error:
            self._pending.lose(index, str(error))
            return
        self._pending.add(Change(index, whole, row, kind is _DELETED))

    # --- for the node -------------------------------------------------------------------------

    def begin(self, room_bytes: int) -> None:
        """Keep changes from now on, up to `room_bytes` of memory."""
        self._pending.room_bytes = room_bytes
        self._pending.take()  # drop earlier ones

    def take(self) -> tuple[list[Change], Lost | None]:
        """Return the changes since the last call, and the last gap in them."""
        return self._pending.take()


class Lost(NamedTuple):
    """A gap: changes up to the entry at `index` are missing. `problem` says why."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    problem: str


class _Pending:
    """The changes since the last `take`."""

    __slots__ = (
        "_bytes",
        "_changes",
        "_entry",
        "_entry_bytes",
        "_entry_changes",
        "_lost",
        "room_bytes",
    )

    def __init__(self) -> None:
        self.room_bytes = -1  # below 0: no node keeps the changes
        self._changes: list[Change] = []
        self._bytes = 0
        self._entry = -1
        self._entry_bytes = self._entry_changes = 0
        self._lost: Lost | None = None

    def add(self, change: Change) -> None:
        if self.room_bytes < 0 or (self._lost is not None and self._lost.index == change.index):
            return
        if change.index != self._entry:
            self._entry, self._entry_bytes, self._entry_changes = change.index, 0, 0
        size = len(change.row)
        self._bytes += size + CHANGE_OVERHEAD_BYTES
        self._entry_bytes += size
        self._entry_changes += 1
        if self._entry_changes > MAX_ENTRY_CHANGES or self._entry_bytes > MAX_ENTRY_BYTES:
            most = f"{MAX_ENTRY_CHANGES} changes of {MAX_ENTRY_BYTES} bytes"
            self.lose(change.index, f"more than {most} by one entry")
        elif self._bytes > self.room_bytes:
            self.lose(change.index, f"more than the {self.room_bytes} bytes that are kept")
        else:
            self._changes.append(change)

    def lose(self, index: int, problem: str) -> None:
        """Forget all changes up to those of an entry."""
        self._changes.clear()
        self._bytes = 0
        self._lost = Lost(index if type(index) is int else -1, problem)

    def take(self) -> tuple[list[Change], Lost | None]:
        taken = self._changes, self._lost
        self._changes, self._bytes, self._entry, self._lost = [], 0, -1, None
        return taken


def checked_path(path: Iterable[PathPart]) -> Path:
    """Return the path as a tuple of parts. Raises TypeError, ValueError."""
    if isinstance(path, str | bytes):
        raise TypeError(f"a path is a tuple of its parts, not {type(path).__name__}")
    parts = tuple(path)
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, str | bytes | int):
            kind = type(part).__name__
            raise TypeError(f"a part of a path is a text, bytes or an integer, not {kind}")
    if len(parts) > MAX_PATH_PARTS:
        raise ValueError(f"a path of {len(parts)} parts; {MAX_PATH_PARTS} are possible")
    return parts


def packed_path(path: Path) -> bytes:
    """Encode a path as msgpack. Raises ValueError, OverflowError."""
    packed: bytes = msgpack.packb(path)
    if len(packed) > MAX_PATH_BYTES:
        raise ValueError(f"a path of {len(packed)} bytes; the limit is {MAX_PATH_BYTES}")
    return packed


def changes_of(machine: object) -> Changes | None:
    """Return the Changes of a state machine, or None if it reports none."""
    found = getattr(machine, "changes", None)
    return found if isinstance(found, Changes) else None
