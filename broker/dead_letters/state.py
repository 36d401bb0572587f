"""The dead letters that were redriven."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, Final

from broker.dead_letters.runs import OffsetRuns
from broker.log.command_layout import natural, text
from broker.log.state import Deletion, Rows, StatePart


@dataclass(slots=True)
class Redriven:
    """The dead letters that were redriven.

    Attributes:
        runs: their offsets, by dead letter topic, then by queue id. Offsets that retention has
            dropped are included, so that runs merge.
        redriven_letters: how many there were.
    """

    runs: dict[str, dict[int, OffsetRuns]] = field(default_factory=dict)
    redriven_letters: int = 0

    def has(self, topic: str, queue_id: int, offset: int) -> bool:
        runs = self.runs.get(topic, {}).get(queue_id)
        return runs is not None and offset in runs


def _captured(redriven: Redriven) -> Iterator[object]:
    copied = [
        (topic, queue_id, runs.begins.copy(), runs.ends.copy())
        for topic, queues in redriven.runs.items()
        for queue_id, runs in queues.items()
    ]
    return (
        [topic, queue_id, list(chain(*zip(begins, ends, strict=True)))]
        for topic, queue_id, begins, ends in copied
    )


def _take(redriven: Redriven, rows: list[Any]) -> None:
    for topic, queue_id, places in rows:
        bounds = [natural(place) for place in places]
        if len(bounds) % 2 or any(a >= b for a, b in pairwise(bounds)):
            raise ValueError("runs of offsets that do not follow one another")
        queues = redriven.runs.setdefault(text(topic), {})
        queues[natural(queue_id)] = OffsetRuns(bounds[::2], bounds[1::2])


def _topic_deleted(redriven: Redriven, deletion: Deletion) -> None:
    redriven.runs.pop(deletion.name, None)


REDRIVEN: Final = StatePart(
    "redriven",
    Redriven,
    numbers=("redriven_letters",),
    rows=(Rows("redriven runs", _captured, _take),),
    topic_deleted=_topic_deleted,
)
