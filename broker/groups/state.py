"""The consumer groups that exist."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from broker.groups.config import ConsumerGroup, read_group
from broker.log.belongings import Belongings
from broker.log.state import Rows, StatePart


@dataclass(slots=True)
class Groups:
    """The consumer groups.

    Attributes:
        configs: by name.
        forbidden: pairs of group and topic; the group may not read the topic.
    """

    configs: dict[str, ConsumerGroup] = field(default_factory=dict)
    forbidden: Belongings[tuple[str, str], None] = field(default_factory=Belongings)


def _captured(groups: Groups) -> Iterator[object]:
    configs = list(groups.configs.values())
    return (config.as_dict() for config in configs)


def _take(groups: Groups, rows: list[Any]) -> None:
    groups.configs.update((group.group, group) for group in map(read_group, rows))


def _captured_forbidden(groups: Groups) -> Iterator[object]:
    pairs = groups.forbidden.captured()

    def rows() -> Iterator[object]:
        yield from sorted([group, topic] for (group, topic), _none in pairs)

    return rows()


def _take_forbidden(groups: Groups, rows: list[Any]) -> None:
    groups.forbidden.update(((str(group), str(topic)), None) for group, topic in rows)


GROUPS: Final = StatePart(
    "groups",
    Groups,
    rows=(
        Rows("groups", _captured, _take),
        Rows("forbidden", _captured_forbidden, _take_forbidden),
    ),
    topic_deleted=lambda groups, deletion: groups.forbidden.drop_topic(deletion.name),
    group_deleted=lambda groups, deletion: groups.forbidden.drop_group(deletion.name),
)
