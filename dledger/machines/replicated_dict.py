"""A dictionary that every member has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dledger.changes import Changes, PackedValue, Path, Watchable
from dledger.machines.command import (
    Appender,
    Calls,
    CommandRefused,
    Key,
    count_arguments,
    key_of,
    pack,
    unpack,
)
from dledger.machines.replicated import Replicated, unknown
from dledger.queries import query

# Every member holds all of it in memory. Part of the format: it must be the same everywhere.
MAX_KEYS = 10_000_000


class ReplicatedDict(Mapping[Key, object], Replicated, Watchable):
    """Keys are text, bytes or integers; values are plain (what msgpack carries).

    Read it on any member, after `await node.read()` for the latest state. Values are copies.
    Clients query `get` and `size`, and watch keys: `log.watch("prices", "tea")`.
    """

    format = "dict/1"

    def __init__(self) -> None:
        self.name = ""
        self.changes = Changes()
        self._values: dict[Key, bytes] = {}

    def through(self, appender: Appender) -> DictCalls:
        """Return calls to this dictionary through a node or a session."""
        return DictCalls(appender, self.name)

    def __getitem__(self, key: Key) -> object:
        return unpack(self._values[key])

    @query
    def get(self, key: Key, default: object = None) -> object:
        """Return the value under a key."""
        return self[key] if key in self._values else default

    @query
    def size(self) -> int:
        """Return the number of keys."""
        return len(self._values)

    def watched(self, path: Path) -> Iterable[tuple[Path, object]]:
        keys: Iterable[Key] = self._values if not path else [path[0]] if path[1:] == () else ()
        values = self._values
        return (((key,), PackedValue(values[key])) for key in keys if key in values)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def carry_out(self, operation: str, arguments: Sequence[object], index: int) -> object:
        match operation:
            case "get":
                (key,) = count_arguments(arguments, 1)
                return _found(self._values.get(key_of(key)))
            case "update":
                self._update(arguments, index)
                return None
            case "pop":
                (key,) = count_arguments(arguments, 1)
                return _found(self._remove(key_of(key), index))
            case "replace":
                return self._replace(arguments, index)
            case "clear":
                count_arguments(arguments, 0)
                self._values.clear()
                self.changes.delete(index, ())
                return None
            case _:
                raise unknown(operation)

    def _update(self, arguments: Sequence[object], index: int) -> None:
        if len(arguments) % 2:
            raise CommandRefused("a key without a value")
        keys = [key_of(each) for each in arguments[::2]]
        new = {key: pack(value) for key, value in zip(keys, arguments[1::2], strict=True)}
        self._make_room(sum(key not in self._values for key in new))
        for key, value in new.items():
            self._put(key, value, index)

    def _put(self, key: Key, packed: bytes, index: int) -> None:
        self._values[key] = packed
        self.changes.set_packed(index, (key,), packed)

    def _remove(self, key: Key, index: int) -> bytes | None:
        found = self._values.pop(key, None)
        if found is not None:
            self.changes.delete(index, (key,))
        return found

    def _replace(self, arguments: Sequence[object], index: int) -> bool:
        """Compare and set. Both sides are lists of one value, or empty for "no such key"."""
        key, expected, replacement = count_arguments(arguments, 3)
        found = self._values.get(key_of(key))
        if found != _one(expected):
            return False
        new = _one(replacement)
        if new is None:
            self._remove(key_of(key), index)
        else:
            self._make_room(found is None)
            self._put(key_of(key), new, index)
        return True

    def _make_room(self, count: int) -> None:
        if len(self._values) + count > MAX_KEYS:
            raise CommandRefused(f"the dictionary has {len(self._values)} keys, {MAX_KEYS} at most")

    def rows(self) -> Iterable[object]:
        return list(self._values.items())

    def load(self, rows: Iterator[object]) -> None:
        values: dict[Key, bytes] = {}
        for row in rows:
            if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], bytes):
                raise ValueError("a row of the snapshot is not a key and a value")
            values[key_of(row[0])] = row[1]
        self._values = values


def _found(packed: bytes | None) -> list[object]:
    return [] if packed is None else [unpack(packed)]


def _one(value: object) -> bytes | None:
    if not isinstance(value, list) or len(value) > 1:
        raise CommandRefused("one value or none is needed, in a list")
    return pack(value[0]) if value else None


class DictCalls(Calls):
    """Calls to a dictionary via the log. Raises as the appender's `append`, and CommandRefused."""

    async def set(self, key: Key, value: object) -> None:
        """Put one value under a key."""
        await self._call("update", key, value)

    async def update(self, values: Mapping[Key, object]) -> None:
        """Put several values under their keys, all at once."""
        await self._call("update", *(part for item in values.items() for part in item))

    async def get(self, key: Key, default: object = None) -> object:
        """Return a value, read through the log: for clients outside the group."""
        return _value(await self._call("get", key), default)

    async def pop(self, key: Key, default: object = None) -> object:
        """Remove a key and return its value."""
        return _value(await self._call("pop", key), default)

    async def add(self, key: Key, value: object) -> bool:
        """Put a value under a new key; return whether the key was new."""
        return await self._call("replace", key, [], [value]) is True

    async def replace(self, key: Key, expected: object, value: object) -> bool:
        """Compare and set; return whether the value was the expected one (equal in msgpack)."""
        return await self._call("replace", key, [expected], [value]) is True

    async def remove(self, key: Key, expected: object) -> bool:
        """Remove a key if its value is the expected one; return whether it was."""
        return await self._call("replace", key, [expected], []) is True

    async def clear(self) -> None:
        """Remove all keys."""
        await self._call("clear")


def _value(found: object, default: object) -> object:
    return found[0] if isinstance(found, list | tuple) and found else default
