"""The SQL92 conditions of consumer groups.

A consumer sends its condition in heartbeats, not in pulls. A new leader has had no heartbeat for up
to 30 seconds. Meanwhile it cannot send all messages, as it does to consumers that filter by tags:
no client checks a condition itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from broker.log.belongings import Belongings
from broker.log.state import Rows, StatePart


class GroupFilter(NamedTuple):
    """A group's condition on a topic.

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
        return self.tables.get((group, topic))


def _captured(filters: Filters) -> Iterator[object]:
    return ([*key, *one] for key, one in filters.tables.captured())


def _take(filters: Filters, rows: list[Any]) -> None:
    for group, topic, condition, version in rows:
        filters.tables[str(group), str(topic)] = GroupFilter(str(condition), int(version))


FILTERS: Final = StatePart(
    "filters",
    Filters,
    rows=(Rows("filters", _captured, _take),),
    topic_deleted=lambda filters, deletion: filters.tables.drop_topic(deletion.name),
    group_deleted=lambda filters, deletion: filters.tables.drop_group(deletion.name),
)
