"""What the log says, part by part. Equal logs, equal states.

Each feature keeps its part, and finds it by the `StatePart` that it has defined:
`state[OFFSETS].committed(...)`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeVar

from broker.log.registry import Registry

S = TypeVar("S")


class Deletion(NamedTuple):
    """A topic or a consumer group was deleted.

    Attributes:
        name: of what was deleted.
        with_offsets: whether its committed offsets go.
        with_locks: whether its locks go; entries before version 3 kept them.
    """

    name: str
    with_offsets: bool
    with_locks: bool


@dataclass(frozen=True, eq=False)
class Rows(Generic[S]):
    """One kind of rows in a snapshot.

    Attributes:
        what: its name.
        captured: the rows as they are at the call; they may be made later, from copies.
        take: puts rows of a snapshot into the part. May raise ValueError, TypeError, KeyError.
    """

    what: str
    captured: Callable[[S], Iterator[object]]
    take: Callable[[S, list[Any]], None]


def _untouched(_part: object, _deletion: Deletion) -> None:
    """Stands for a part that has nothing of a topic or a group."""


@dataclass(frozen=True, eq=False)
class StatePart(Generic[S]):
    """One feature's part of the state, a dataclass. Only folds change it.

    Attributes:
        name: of the part.
        make: the part of an empty log.
        blank: the part to which a snapshot adds rows; `make` when None.
        numbers: attributes that are whole numbers, and stand in snapshots by these names.
        rows: what else a snapshot has of it.
        topic_deleted: lets go of what belongs to a topic.
        group_deleted: lets go of what belongs to a consumer group.
    """

    name: str
    make: Callable[[], S]
    blank: Callable[[], S] | None = None
    numbers: tuple[str, ...] = ()
    rows: tuple[Rows[S], ...] = ()
    topic_deleted: Callable[[S, Deletion], None] = _untouched
    group_deleted: Callable[[S, Deletion], None] = _untouched


class BrokerState:
    """The folded log. Only `broker.log.fold` changes it.

    Attributes:
        registry: the features whose parts it has.
        log_end: position of the byte behind the last entry.
        refused_entries: how many entries were passed over, because no broker can have written them.
    """

    def __init__(self, registry: Registry, *, blank: bool = False) -> None:
        self.registry = registry
        self.log_end = 0
        self.refused_entries = 0
        self._parts: dict[StatePart[Any], Any] = {
            part: (part.blank or part.make)() if blank else part.make() for part in registry.parts
        }

    def __getitem__(self, part: StatePart[S]) -> S:
        """A part; the same object for ever."""
        found: S = self._parts[part]
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BrokerState) and (
            (self.log_end, self.refused_entries, self._parts)
            == (other.log_end, other.refused_entries, other._parts)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = {part.name: value for part, value in self._parts.items()}
        return f"BrokerState(log_end={self.log_end}, {parts})"

    def become(self, other: "BrokerState") -> None:
        """Take over all of another state, which has no other owner."""
        self.log_end, self.refused_entries = other.log_end, other.refused_entries
        for part, mine in self._parts.items():
            for one in fields(mine):
                setattr(mine, one.name, getattr(other[part], one.name))

    def topic_deleted(self, deletion: Deletion) -> None:
        """Let all parts forget what belongs to a topic."""
        for part, value in self._parts.items():
            part.topic_deleted(value, deletion)

    def group_deleted(self, deletion: Deletion) -> None:
        """Let all parts forget what belongs to a consumer group."""
        for part, value in self._parts.items():
            part.group_deleted(value, deletion)
