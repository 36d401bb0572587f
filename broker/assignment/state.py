"""How groups read topics: the modes that operators have set."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from broker.log.belongings import Belongings
from broker.log.state import Rows, StatePart
from remoting.bodies.assignment import PULL


class Mode(NamedTuple):
    """How a group reads a topic.

    Attributes:
        name: PULL or POP.
        shares: with how many other members a popping member shares its queues; with all, if it is 0
            or less.
    """

    name: str = PULL
    shares: int = -1


@dataclass(slots=True)
class Modes:
    """All modes that were set, by topic and group."""

    modes: Belongings[tuple[str, str], Mode] = field(
        default_factory=lambda: Belongings(group_at=1, topic_at=0)
    )


def _captured(modes: Modes) -> Iterator[object]:
    return ([*key, *mode] for key, mode in modes.modes.captured())


def _take(modes: Modes, rows: list[Any]) -> None:
    for topic, group, name, shares in rows:
        modes.modes[topic, group] = Mode(str(name), int(shares))


MODES: Final = StatePart(
    "request modes",
    Modes,
    rows=(Rows("request modes", _captured, _take),),
    topic_deleted=lambda modes, deletion: modes.modes.drop_topic(deletion.name),
    group_deleted=lambda modes, deletion: modes.modes.drop_group(deletion.name),
)
