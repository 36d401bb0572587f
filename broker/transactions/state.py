"""The open transactions, as the log says."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heapify, heappush
from typing import Any, Final, NamedTuple

from broker.log.state import Rows, StatePart

# The ends that are remembered, so that a producer may ask for one again whose answer was lost.
# Some seconds of the highest rate; a snapshot has them all.
MAX_ENDS: Final = 10_000


# What the heap of times may have besides: it is cleared of what does not hold any more when it has
# as much again as there are open transactions, so a change costs little on average.
_SPARE_DUE: Final = 1024


class Half(NamedTuple):
    """A message that waits for the end of its transaction.

    Its transaction is known by the position where the message was stored first.

    Attributes:
        group: the producer group, one of whose members knows how it ends.
        at: position of the message. Retention moves it.
        size: bytes of its record.
        queue_offset: its first offset among the half messages, by which clients know it too.
        stored_ms: when it was stored first; milliseconds since 1970.
        due_ms: when the producers are asked (again).
        checks: how often they were asked.
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

    Attributes:
        position: where its message was stored first.
    """

    position: int


class End(IntEnum):
    """How a transaction ended. The numbers stand in snapshots."""

    COMMITTED = 1
    ROLLED_BACK = 2
    GIVEN_UP = 3


@dataclass(slots=True)
class Transactions:
    """The transactions, each by the position of its message.

    Attributes:
        halves: the open ones.
        ends: how the last ones ended, the oldest first.
        resumed: the last messages of transactions that were given up, and that an operator has
            opened once more, by their positions; the oldest first.
        committed: how many were committed.
        rolled_back: how many were rolled back.
        given_up: of how many nobody said in time how they end.
        by_due: a heap of (when its producers are asked, position), one for each open transaction
            and time. What does not hold any more is still in it; a leader takes from it what is
            due. It tells nothing that the others do not, so it is in no snapshot.
    """

    halves: dict[int, Half] = field(default_factory=dict)
    ends: OrderedDict[int, End] = field(default_factory=OrderedDict)
    resumed: OrderedDict[int, None] = field(default_factory=OrderedDict)
    committed: int = 0
    rolled_back: int = 0
    given_up: int = 0
    by_due: list[tuple[int, int]] = field(default_factory=list, compare=False)

    def put(self, position: int, half: Half) -> None:
        """A transaction is open, or is asked about at another time."""
        self.halves[position] = half
        heappush(self.by_due, (half.due_ms, position))
        if len(self.by_due) > 2 * len(self.halves) + _SPARE_DUE:
            self.find_due()

    def find_due(self) -> None:
        """Have `by_due` hold all, and nothing else."""
        self.by_due = [(half.due_ms, position) for position, half in self.halves.items()]
        heapify(self.by_due)

    def is_due_at(self, position: int, due_ms: int) -> bool:
        """Whether a transaction is open, and to be asked about at this time."""
        half = self.halves.get(position)
        return half is not None and half.due_ms == due_ms

    def end(self, position: int, end: End) -> Half | None:
        """End a transaction; None when it is not open."""
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


def _needed_from(transactions: Transactions) -> int | None:
    return min([half.at for half in transactions.halves.values()], default=None)


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
    needed_from=_needed_from,
)
