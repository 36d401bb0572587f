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
        keeps_ends: whether it is remembered where the queues of a topic ended; entries before
            version 6 did not.
    """

    name: str
    with_offsets: bool
    with_locks: bool
    keeps_ends: bool = False


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


def _not_told(_part: object, _topic: str) -> None:
    """Stands for a part that has nothing of a topic before its first message."""


def _nothing(_part: object) -> None:
    """Stands for a part that has nothing on disk, or needs no message."""


@dataclass(frozen=True, eq=False)
class StatePart(Generic[S]):
    """One feature's part of the state, a dataclass. Only folds change it.

    Attributes:
        name: of the part.
        make: the part of an empty log.
        blank: the part to which a snapshot adds rows; `make` when None.
        make_in: for a part that keeps much of itself on disk, instead of `make`: given the folder
            for it, or None to keep it in memory.
        close: lets go of what the part has on disk.
        numbers: attributes that are whole numbers, and stand in snapshots by these names.
        rows: what else a snapshot has of it.
        topic_made: a topic is there that was not.
        topic_deleted: lets go of what belongs to a topic.
        group_deleted: lets go of what belongs to a consumer group.
        needed_from: where the first message lies that the part has use for; retention keeps it.
    """

    name: str
    make: Callable[[], S]
    blank: Callable[[], S] | None = None
    make_in: Callable[[str | None], S] | None = None
    close: Callable[[S], None] = _nothing
    numbers: tuple[str, ...] = ()
    rows: tuple[Rows[S], ...] = ()
    topic_made: Callable[[S, str], None] = _not_told
    topic_deleted: Callable[[S, Deletion], None] = _untouched
    group_deleted: Callable[[S, Deletion], None] = _untouched
    needed_from: Callable[[S], int | None] = _nothing

    def made(self, folder: str | None, *, is_blank: bool) -> S:
        """The part of an empty log, or the one that a snapshot fills. Raises DiskFailed."""
        if self.make_in is not None:
            return self.make_in(folder)
        return ((is_blank and self.blank) or self.make)()


class BrokerState:
    """The folded log. Only `broker.log.fold` changes it.

    Args:
        registry: the features whose parts it has.
        blank: whether a snapshot fills it.
        folder: for what parts keep on disk; None keeps all in memory.

    Attributes:
        registry: the features whose parts it has.
        folder: for what parts keep on disk.
        log_end: position of the byte behind the last entry.
        refused_entries: how many entries were passed over, because no broker can have written them.
    """

    def __init__(
        self, registry: Registry, *, blank: bool = False, folder: str | None = None
    ) -> None:
        self.registry = registry
        self.folder = folder
        self.log_end = 0
        self.refused_entries = 0
        self._parts: dict[StatePart[Any], Any] = {
            part: part.made(folder, is_blank=blank) for part in registry.parts
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
            part.close(mine)
            for one in fields(mine):
                setattr(mine, one.name, getattr(other[part], one.name))

    def needed_from(self) -> int | None:
        """Where the first message lies that some part has use for; None: no part needs any."""
        needed = [part.needed_from(value) for part, value in self._parts.items()]
        return min([at for at in needed if at is not None], default=None)

    def close(self) -> None:
        """Let go of what is on disk."""
        for part, value in self._parts.items():
            part.close(value)

    def topic_made(self, topic: str) -> None:
        """Tell all parts that a topic is there that was not."""
        for part, value in self._parts.items():
            part.topic_made(value, topic)

    def topic_deleted(self, deletion: Deletion) -> None:
        """Let all parts forget what belongs to a topic."""
        for part, value in self._parts.items():
            part.topic_deleted(value, deletion)

    def group_deleted(self, deletion: Deletion) -> None:
        """Let all parts forget what belongs to a consumer group."""
        for part, value in self._parts.items():
            part.group_deleted(value, deletion)
