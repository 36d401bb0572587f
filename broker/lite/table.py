"""A table of a million small rows, by name.

Rows are in shards by a hash of their names, so that no step takes long: a dictionary that grows, or
is copied for a snapshot, is one shard. A row that is put goes to the end of its shard, so the first
rows are those that were put longest ago.
"""

from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar
from zlib import crc32

V = TypeVar("V")

# A change after a capture copies a shard: a thousand rows of a full table.
SHARDS: Final = 1024


class LiteTable(Generic[V]):
    """Values are immutable: a snapshot may hold them."""

    __slots__ = ("_count", "_held", "_shards")

    def __init__(self) -> None:
        self._shards: dict[int, dict[bytes, V]] = {}
        self._held: set[int] = set()  # shards that a capture has: copied before they change
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LiteTable) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LiteTable({dict(self.items())})"

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def get(self, key: bytes) -> V | None:
        shard = self._shards.get(crc32(key) % SHARDS)
        return None if shard is None else shard.get(key)

    def put(self, key: bytes, value: V) -> None:
        """Put a row behind all others of its shard."""
        shard = self._changing(crc32(key) % SHARDS)
        if shard.pop(key, None) is None:
            self._count += 1
        shard[key] = value

    def set(self, key: bytes, value: V) -> None:
        """Put a row where it is."""
        shard = self._changing(crc32(key) % SHARDS)
        self._count += key not in shard
        shard[key] = value

    def pop(self, key: bytes) -> V | None:
        number = crc32(key) % SHARDS
        if key not in self._shards.get(number, ()):
            return None
        shard = self._changing(number)
        value = shard.pop(key)
        self._count -= 1
        if not shard:
            del self._shards[number]
        return value

    def items(self) -> Iterator[tuple[bytes, V]]:
        for shard in self._shards.values():
            yield from shard.items()

    def shards(self) -> list[dict[bytes, V]]:
        """List the shards. They must not be changed."""
        return list(self._shards.values())

    def captured(self) -> list[dict[bytes, V]]:
        """Return the shards as of the call, whatever changes later."""
        self._held.update(self._shards)
        return list(self._shards.values())

    def take_shard(self) -> bool:
        """Free one shard of a table that is in use no more; return whether there was one."""
        if not self._shards:
            return False
        self._shards.popitem()
        return True

    def _changing(self, number: int) -> dict[bytes, V]:
        shard = self._shards.get(number)
        if shard is None:
            shard = self._shards[number] = {}
        elif number in self._held:
            shard = self._shards[number] = shard.copy()
        else:
            return shard
        self._held.discard(number)
        return shard


AnyTable = LiteTable[Any]
