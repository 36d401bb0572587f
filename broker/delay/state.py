"""The delayed messages in the folded state."""

from dataclasses import dataclass, field
from typing import Any, Final

from broker.delay.waiting_table import Waiting, WaitingTable
from broker.log.state import Rows, StatePart


@dataclass(slots=True)
class Delays:
    """The waiting messages, and counts of the others.

    `dropped`: how many were recalled, or lost their topic.
    """

    waiting: WaitingTable = field(default_factory=WaitingTable)
    delivered: int = 0
    dropped: int = 0


def _take(delays: Delays, rows: list[Any]) -> None:
    delays.waiting.add(Waiting(int(at), int(due_ms), int(size)) for at, due_ms, size in rows)


DELAYS: Final = StatePart(
    "delays",
    Delays,
    make_in=lambda folder: Delays(WaitingTable(folder)),
    close=lambda delays: delays.waiting.close(),
    numbers=("delivered", "dropped"),
    rows=(Rows("delayed", lambda delays: delays.waiting.captured_rows(), _take),),
    needed_from=lambda delays: delays.waiting.first_position(),
)
