"""What folding a run of entries did, besides changing the state."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVarTuple

V = TypeVarTuple("V")


@dataclass(frozen=True, slots=True)
class EntryRefused:
    """The result of an entry that was passed over."""

    reason: str


@dataclass(slots=True)
class Arrivals:
    """The messages that came to one queue in one run of entries.

    Attributes:
        first_offset: of the first of them.
        places: where each record lies in the log.
        sizes: the bytes of each record.
        codes: the hash of the tags of each, 0 without tags.
        bodies: (the body of an entry, where it lies in the log, how many of the records it has).
    """

    first_offset: int
    places: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    bodies: list[tuple[bytes, int, int]] = field(default_factory=list)

    def add(self, behind: "Arrivals") -> None:
        """Add messages that came behind these."""
        self.places += behind.places
        self.sizes += behind.sizes
        self.codes += behind.codes
        self.bodies += behind.bodies

    def records(self) -> list[bytes]:
        """The messages, as the log has them: copies of what most members never look at."""
        spans = zip(self.places, self.sizes, strict=True)
        return [
            body[place - position : place - position + size]
            for body, position, count in self.bodies
            for place, size in islice(spans, count)
        ]


@dataclass(slots=True)
class Folded:
    """The effects of a run of entries.

    An observer, such as the fold of Spark's tables, sets `changes` to a list. The modules `state`
    of the features have the classes of changes; what a command says itself is not repeated.

    Attributes:
        results: one an entry; None, or `EntryRefused`.
        deleted_topics: their queues are gone; they went before the arrivals came.
        arrivals: by topic and queue id.
        topics_changed: whether the name servers have to be told.
        changes: what the fold changed, in order; None without an observer.
    """

    results: list[EntryRefused | None] = field(default_factory=list)
    deleted_topics: list[str] = field(default_factory=list)
    arrivals: dict[tuple[str, int], Arrivals] = field(default_factory=dict)
    topics_changed: bool = False
    changes: list[object] | None = None

    def tell(self, change: Callable[[*V], object], *values: *V) -> None:
        """Record a change for the observer. Without one, the value is not even built."""
        if self.changes is not None:
            self.changes.append(change(*values))
