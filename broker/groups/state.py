"""The consumer groups that exist."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from broker.groups.config import ConsumerGroup, read_group
from broker.log.state import Deletion, Rows, StatePart


@dataclass(slots=True)
class Groups:
    """The consumer groups.

    Attributes:
        configs: by name.
        forbidden: pairs of group and topic: the group may not read the topic.
    """

    configs: dict[str, ConsumerGroup] = field(default_factory=dict)
    forbidden: set[tuple[str, str]] = field(default_factory=set)


def _captured(groups: Groups) -> Iterator[object]:
    configs = list(groups.configs.values())
    return (config.as_dict() for config in configs)


def _take(groups: Groups, rows: list[Any]) -> None:
    groups.configs.update((group.group, group) for group in map(read_group, rows))


def _captured_forbidden(groups: Groups) -> Iterator[object]:
    return iter([list(pair) for pair in sorted(groups.forbidden)])


def _take_forbidden(groups: Groups, rows: list[Any]) -> None:
    groups.forbidden.update((str(group), str(topic)) for group, topic in rows)


def _topic_deleted(groups: Groups, deletion: Deletion) -> None:
    groups.forbidden = {pair for pair in groups.forbidden if pair[1] != deletion.name}


def _group_deleted(groups: Groups, deletion: Deletion) -> None:
    groups.forbidden = {pair for pair in groups.forbidden if pair[0] != deletion.name}


GROUPS: Final = StatePart(
    "groups",
    Groups,
    rows=(
        Rows("groups", _captured, _take),
        Rows("forbidden", _captured_forbidden, _take_forbidden),
    ),
    topic_deleted=_topic_deleted,
    group_deleted=_group_deleted,
)
