"""How far each consumer group has come."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from broker.log.state import Deletion, Rows, StatePart


@dataclass(slots=True)
class Offsets:
    """What was committed; `tables` by (group, topic): queue id -> offset of the next message."""

    tables: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next message the group wants to consume, or None if it never committed an offset."""
        table = self.tables.get((group, topic))
        return None if table is None else table.get(queue_id)


def _topic_deleted(offsets: Offsets, deletion: Deletion) -> None:
    _drop(offsets, [key for key in offsets.tables if key[1] == deletion.name])


def _group_deleted(offsets: Offsets, deletion: Deletion) -> None:
    if deletion.with_offsets:
        _drop(offsets, [key for key in offsets.tables if key[0] == deletion.name])


def _drop(offsets: Offsets, keys: list[tuple[str, str]]) -> None:
    for key in keys:
        del offsets.tables[key]


def _captured(offsets: Offsets) -> Iterator[object]:
    rows: list[list[object]] = [[*key, table.copy()] for key, table in offsets.tables.items()]
    return iter(rows)


def _take(offsets: Offsets, rows: list[Any]) -> None:
    offsets.tables.update(((group, topic), table) for group, topic, table in rows)


OFFSETS: Final = StatePart(
    "offsets",
    Offsets,
    rows=(Rows("offsets", _captured, _take),),
    topic_deleted=_topic_deleted,
    group_deleted=_group_deleted,
)
