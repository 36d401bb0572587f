"""The SQL92 conditions of consumer groups.

A consumer names its condition in its heartbeats, and not in its pulls. A new leader has heard no
heartbeat for up to 30 seconds, and cannot send all messages meanwhile, as it does to consumers that
filter by tags: no client checks a condition by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from broker.log.belongings import Belongings
from broker.log.state import Deletion, Rows, StatePart


class GroupFilter(NamedTuple):
    """What a group wants of a topic.

    Attributes:
        condition: in SQL92.
        version: grows with each change; the client's clock.
    """

    condition: str
    version: int


@dataclass(slots=True)
class Filters:
    """The conditions by group and topic."""

    tables: Belongings[tuple[str, str], GroupFilter] = field(default_factory=Belongings)

    def found(self, group: str, topic: str) -> GroupFilter | None:
        """What a group wants of a topic, if it filters by SQL92."""
        return self.tables.get((group, topic))


def _topic_deleted(filters: Filters, deletion: Deletion) -> None:
    filters.tables.drop_topic(deletion.name)


def _group_deleted(filters: Filters, deletion: Deletion) -> None:
    filters.tables.drop_group(deletion.name)


def _captured(filters: Filters) -> Iterator[object]:
    return ([*key, *one] for key, one in filters.tables.captured())


def _take(filters: Filters, rows: list[Any]) -> None:
    for group, topic, condition, version in rows:
        filters.tables[str(group), str(topic)] = GroupFilter(str(condition), int(version))


FILTERS: Final = StatePart(
    "filters",
    Filters,
    rows=(Rows("filters", _captured, _take),),
    topic_deleted=_topic_deleted,
    group_deleted=_group_deleted,
)
