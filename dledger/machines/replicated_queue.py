"""A first-in-first-out queue that every member has. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from dledger.changes import Changes, Path, Watchable
from dledger.machines.command import (
    Appender,
    Calls,
    CommandRefused,
    count_arguments,
    integer_of,
    pack,
    unpack,
)
from dledger.machines.replicated import Replicated, unknown
from dledger.queries import query

# Every member holds all of it in memory. Part of the format: it must be the same everywhere.
MAX_ITEMS = 1_000_000
# The limit of one `take`: the session keeps its answer, which must be small.
MAX_TAKEN = 1_000


class ReplicatedQueue(Replicated, Watchable):
    """Items are plain values. Each is given to one taker; with a session, exactly once.

    Clients query `size`, and watch it: the value of the path `("jobs",)` is the number of items.
    """

    format = "queue/1"

    def __init__(self) -> None:
        self.name = ""
        self.changes = Changes()
        self._items: deque[bytes] = deque()

    def through(self, appender: Appender) -> QueueCalls:
        """Return calls to this queue through a node or a session."""
        return QueueCalls(appender, self.name)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[object]:
        return iter([unpack(item) for item in self._items])

    @query
    def size(self) -> int:
        """Return the number of items."""
        return len(self._items)

    def watched(self, path: Path) -> Iterable[tuple[Path, object]]:
        return [] if path else [((), len(self._items))]

    def carry_out(self, operation: str, arguments: Sequence[object], index: int) -> object:
        match operation:
            case "put":
                if len(self._items) + len(arguments) > MAX_ITEMS:
                    raise CommandRefused(f"the queue is full: {len(self._items)} items")
                self._items.extend([pack(item) for item in arguments])
                self._tell(bool(arguments), index)
                return len(self._items)
            case "take":
                (count,) = count_arguments(arguments, 1)
                wanted = integer_of(count)
                if not 1 <= wanted <= MAX_TAKEN:
                    raise CommandRefused(f"take 1 to {MAX_TAKEN} items, not {wanted}")
                wanted = min(wanted, len(self._items))
                taken = [unpack(self._items.popleft()) for _ in range(wanted)]
                self._tell(bool(taken), index)
                return taken
            case _:
                raise unknown(operation)

    def _tell(self, changed: bool, index: int) -> None:
        if changed:
            self.changes.set(index, (), len(self._items))

    def rows(self) -> Iterable[object]:
        return list(self._items)

    def load(self, rows: Iterator[object]) -> None:
        items: deque[bytes] = deque()
        for row in rows:
            if not isinstance(row, bytes):
                raise ValueError("a row of the snapshot is not an item")
            items.append(row)
        self._items = items


class QueueCalls(Calls):
    """Calls to a queue through the log. Raises as the appender's `append`, and CommandRefused."""

    async def put(self, *items: object) -> int:
        """Add items at the end, all at once; return the new length."""
        return integer_of(await self._call("put", *items))

    async def take(self, count: int = 1) -> list[object]:
        """Take up to `count` items from the front; none if the queue is empty."""
        taken = await self._call("take", count)
        return list(taken) if isinstance(taken, list | tuple) else []
