"""A counter that every member has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dledger.changes import Changes, Path, Watchable
from dledger.machines.command import Appender, Calls, CommandRefused, count_arguments, integer_of
from dledger.machines.replicated import Replicated, unknown
from dledger.queries import query

# The integers that msgpack can encode.
LEAST, MOST = -(2**63), 2**63 - 1


class ReplicatedCounter(Replicated, Watchable):
    """An integer of 64 bits. Read `value` after `await node.read()`.

    Clients query `get`, and watch it: `log.watch("visits")`.
    """

    format = "counter/1"

    def __init__(self) -> None:
        self.name = ""
        self.changes = Changes()
        self.value = 0

    def through(self, appender: Appender) -> CounterCalls:
        """Return calls to this counter through a node or a session."""
        return CounterCalls(appender, self.name)

    @query
    def get(self) -> int:
        """Return the value."""
        return self.value

    def watched(self, path: Path) -> Iterable[tuple[Path, object]]:
        return [] if path else [((), self.value)]

    def carry_out(self, operation: str, arguments: Sequence[object], index: int) -> object:
        match operation:
            case "add":
                (amount,) = count_arguments(arguments, 1)
                value = self.value + integer_of(amount)
            case "set":
                (amount,) = count_arguments(arguments, 1)
                value = integer_of(amount)
            case _:
                raise unknown(operation)
        if not LEAST <= value <= MOST:
            raise CommandRefused("the counter would leave 64 bits")
        if value != self.value:
            self.value = value
            self.changes.set(index, (), value)
        return value

    def rows(self) -> Iterable[object]:
        return [self.value]

    def load(self, rows: Iterator[object]) -> None:
        self.value = integer_of(next(rows))


class CounterCalls(Calls):
    """Calls to a counter through the log. Raises as the appender's `append`, and CommandRefused."""

    async def add(self, amount: int = 1) -> int:
        """Add `amount`; return the sum."""
        return integer_of(await self._call("add", amount))

    async def get(self) -> int:
        """Return the value, read through the log: for clients outside the group."""
        return await self.add(0)

    async def set(self, value: int) -> None:
        """Set the counter to `value`."""
        await self._call("set", value)
