"""The open transactions in the folded state."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heapify, heappush
from typing import Any, Final, NamedTuple

from broker.log.state import Rows, StatePart

# Ends are remembered, because a producer may ask again if the answer was lost. So many are some
# seconds of the highest rate; a snapshot has them all.
MAX_ENDS: Final = 10_000

# The heap of due times is rebuilt when it has more outdated entries than this, plus twice the open
# transactions, so a change costs little on average.
_SPARE_DUE: Final = 1024


class Half(NamedTuple):
    """A message that waits for the end of its transaction.

    The transaction is identified by the position where the message was first stored.

    Attributes:
        group: the producer group, whose members know the end.
        at: position of the message; retention may move it.
        size: bytes of its record.
        queue_offset: its first offset among the half messages, which clients send as well.
        stored_ms: when it was first stored; milliseconds since 1970.
        due_ms: when the producers are checked next.
        checks: how often they were checked.
    """

    group: str
    at: int
    size: int
    queue_offset: int
    stored_ms: int
    due_ms: int
    checks: int = 0


class TransactionChecked(NamedTuple):
    """The producers of an open transaction are asked how it ends.

    `position`: where its message was first stored.
    """

    position: int


class End(IntEnum):
    """How a transaction ended. Snapshots hold the numbers."""

    COMMITTED = 1
    ROLLED_BACK = 2
    GIVEN_UP = 3


@dataclass(slots=True)
class Transactions:
    """The transactions, each by the position of its message.

    Attributes:
        halves: the open ones.
        ends: how the last ones ended, the oldest first.
        resumed: positions of the last messages given up whose transactions an operator has resumed,
            the oldest first.
        given_up: how many never ended.
        by_due: a heap of (due time, position), with an entry for each open transaction and outdated
            entries. The leader takes due ones from it. It follows from `halves`, so it is not in
            snapshots.
    """

    halves: dict[int, Half] = field(default_factory=dict)
    ends: OrderedDict[int, End] = field(default_factory=OrderedDict)
    resumed: OrderedDict[int, None] = field(default_factory=OrderedDict)
    committed: int = 0
    rolled_back: int = 0
    given_up: int = 0
    by_due: list[tuple[int, int]] = field(default_factory=list, compare=False)

    def put(self, position: int, half: Half) -> None:
        self.halves[position] = half
        heappush(self.by_due, (half.due_ms, position))
        if len(self.by_due) > 2 * len(self.halves) + _SPARE_DUE:
            self.find_due()

    def find_due(self) -> None:
        self.by_due = [(half.due_ms, position) for position, half in self.halves.items()]
        heapify(self.by_due)

    def is_due_at(self, position: int, due_ms: int) -> bool:
        half = self.halves.get(position)
        return half is not None and half.due_ms == due_ms

    def end(self, position: int, end: End) -> Half | None:
        """End a transaction; None if it is not open."""
        half = self.halves.pop(position, None)
        if half is None:
            return None
        self.ends[position] = end
        if len(self.ends) > MAX_ENDS:
            self.ends.popitem(last=False)
        if end is End.COMMITTED:
            self.committed += 1
        elif end is End.ROLLED_BACK:
            self.rolled_back += 1
        else:
            self.given_up += 1
        return half


def _captured_resumed(transactions: Transactions) -> Iterator[object]:
    return iter(transactions.resumed.copy())


def _take_resumed(transactions: Transactions, rows: list[Any]) -> None:
    transactions.resumed.update((int(position), None) for position in rows)


def _captured_halves(transactions: Transactions) -> Iterator[object]:
    halves = transactions.halves.copy()
    return ([position, *half] for position, half in halves.items())


def _take_halves(transactions: Transactions, rows: list[Any]) -> None:
    for position, group, *numbers in rows:
        transactions.put(int(position), Half(str(group), *map(int, numbers)))


def _captured_ends(transactions: Transactions) -> Iterator[object]:
    ends = list(transactions.ends.items())  # an OrderedDict takes longer to copy
    return ([position, int(end)] for position, end in ends)


def _take_ends(transactions: Transactions, rows: list[Any]) -> None:
    transactions.ends.update((int(position), End(end)) for position, end in rows)


TRANSACTIONS: Final = StatePart(
    "transactions",
    Transactions,
    numbers=("committed", "rolled_back", "given_up"),
    rows=(
        Rows("halves", _captured_halves, _take_halves),
        Rows("ends of transactions", _captured_ends, _take_ends),
        Rows("resumed transactions", _captured_resumed, _take_resumed),
    ),
    needed_from=lambda transactions: min(
        [half.at for half in transactions.halves.values()], default=None
    ),
)
