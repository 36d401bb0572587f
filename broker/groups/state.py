"""The consumer groups that exist."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from broker.groups.config import ConsumerGroup, read_group
from broker.log.state import Rows, StatePart


@dataclass(slots=True)
class Groups:
    """The consumer groups; `configs` by name."""

    configs: dict[str, ConsumerGroup] = field(default_factory=dict)


def _captured(groups: Groups) -> Iterator[object]:
    configs = list(groups.configs.values())
    return (config.as_dict() for config in configs)


def _take(groups: Groups, rows: list[Any]) -> None:
    groups.configs.update((group.group, group) for group in map(read_group, rows))


GROUPS: Final = StatePart("groups", Groups, rows=(Rows("groups", _captured, _take),))
