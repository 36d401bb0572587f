"""The delayed messages, as the log says."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from broker.delay.waiting_table import Waiting, WaitingTable
from broker.log.state import Rows, StatePart


@dataclass(slots=True)
class Delays:
    """The messages that wait, and what became of the others.

    Attributes:
        waiting: they wait.
        delivered: how many were delivered.
        dropped: how many were recalled, or lost their topic.
    """

    waiting: WaitingTable = field(default_factory=WaitingTable)
    delivered: int = 0
    dropped: int = 0


def _made(folder: str | None) -> Delays:
    return Delays(WaitingTable(folder))


def _closed(delays: Delays) -> None:
    delays.waiting.close()


def _needed_from(delays: Delays) -> int | None:
    return delays.waiting.first_position()


def _captured(delays: Delays) -> Iterator[object]:
    return delays.waiting.captured_rows()


def _take(delays: Delays, rows: list[Any]) -> None:
    delays.waiting.add(Waiting(int(at), int(due_ms), int(size)) for at, due_ms, size in rows)


DELAYS: Final = StatePart(
    "delays",
    Delays,
    make_in=_made,
    close=_closed,
    numbers=("delivered", "dropped"),
    rows=(Rows("delayed", _captured, _take),),
    needed_from=_needed_from,
)
