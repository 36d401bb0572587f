"""Locks with leases, without a clock in the log. Pure.

A lock ends when its holder releases it, or when a waiting client has seen it unchanged for the
length of its lease, on the client's own clock. The client then appends a command to end *that*
state, which has no effect if the holder has renewed it meanwhile. So no two clocks are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dledger.changes import Changes, Path, Watchable
from dledger.machines.command import CommandRefused, count_arguments, integer_of
from dledger.machines.replicated import Replicated, unknown
from dledger.queries import query

# Every member holds all of them in memory. Part of the format: it must be the same everywhere.
MAX_LOCKS = 100_000
MAX_TEXT_BYTES = 1_024
# A day: a client that holds a lock longer renews it.
MAX_LEASE_MS = 86_400_000


class Holding(NamedTuple):
    """The holder of a lock.

    `token` grows from holder to holder: show it to the protected resource, which should refuse
    older ones. `beat` counts renewals.
    """

    token: int
    holder: str
    lease_ms: int
    beat: int


class ReplicatedLocks(Replicated, Watchable):
    """Named locks. `holding(name)` names the holder of one, after `await node.read()`.

    Clients query `holding`, and watch locks: `log.watch("locks", "door")`. The value is the Holding
    as a list; a lock that ends is deleted.
    """

    format = "locks/1"

    def __init__(self) -> None:
        self.name = ""
        self.changes = Changes()
        self._holdings: dict[str, Holding] = {}

    def watched(self, path: Path) -> Iterable[tuple[Path, object]]:
        if not path:
            return (((lock,), held) for lock, held in self._holdings.items())
        lock = path[0]
        held = self._holdings.get(lock) if isinstance(lock, str) and len(path) == 1 else None
        return [] if held is None else [(path, held)]

    @query
    def holding(self, lock: str) -> Holding | None:
        """Return the holder of the lock."""
        return self._holdings.get(lock)

    def carry_out(self, operation: str, arguments: Sequence[object], index: int) -> object:
        match operation:
            case "acquire":
                lock, holder, lease_ms = count_arguments(arguments, 3)
                return self._acquire(_text(lock), _text(holder), integer_of(lease_ms), index)
            case "renew":
                lock, holder = count_arguments(arguments, 2)
                return self._renew(_text(lock), _text(holder), index)
            case "release":
                lock, holder = count_arguments(arguments, 2)
                found = self._holdings.get(_text(lock))
                return self._end(_text(lock), found and found.holder == holder, index)
            case "expire":
                lock, token, beat = count_arguments(arguments, 3)
                found = self._holdings.get(_text(lock))
                applies = found and [found.token, found.beat] == [token, beat]
                return self._end(_text(lock), applies, index)
            case _:
                raise unknown(operation)

    def _acquire(self, lock: str, holder: str, lease_ms: int, index: int) -> Holding:
        if not 1 <= lease_ms <= MAX_LEASE_MS:
            raise CommandRefused(f"a lease of {lease_ms} ms; 1 to {MAX_LEASE_MS} are possible")
        if lock not in self._holdings:
            if len(self._holdings) >= MAX_LOCKS:
                raise CommandRefused(f"{MAX_LOCKS} locks are held")
            self._hold(lock, Holding(index, holder, lease_ms, 0), index)
        return self._holdings[lock]

    def _renew(self, lock: str, holder: str, index: int) -> bool:
        found = self._holdings.get(lock)
        if found is None or found.holder != holder:
            return False
        self._hold(lock, found._replace(beat=found.beat + 1), index)
        return True

    def _hold(self, lock: str, holding: Holding, index: int) -> None:
        self._holdings[lock] = holding
        self.changes.set(index, (lock,), holding)

    def _end(self, lock: str, applies: bool | Holding | None, index: int) -> bool:
        if not applies:
            return False
        del self._holdings[lock]
        self.changes.delete(index, (lock,))
        return True

    def rows(self) -> Iterable[object]:
        return [[lock, *holding] for lock, holding in self._holdings.items()]

    def load(self, rows: Iterator[object]) -> None:
        holdings = {}
        for row in rows:
            if not isinstance(row, list) or len(row) != 5:
                raise ValueError("a row of the snapshot is not a lock")
            lock, token, holder, lease_ms, beat = row
            numbers = integer_of(token), integer_of(lease_ms), integer_of(beat)
            holdings[_text(lock)] = Holding(numbers[0], _text(holder), numbers[1], numbers[2])
        self._holdings = holdings


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value.encode()) > MAX_TEXT_BYTES:
        raise CommandRefused(f"a name is text of at most {MAX_TEXT_BYTES} bytes")
    return value
