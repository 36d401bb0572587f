"""The effects of folding a run of entries, besides the changed state."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVarTuple

V = TypeVarTuple("V")


@dataclass(frozen=True, slots=True)
class EntryRefused:
    """The result of a skipped entry."""

    reason: str


@dataclass(slots=True)
class Arrivals:
    """The messages that one run of entries added to one queue.

    Attributes:
        first_offset: queue offset of the first message.
        places: log position of each record.
        sizes: bytes of each record.
        codes: hash of the tags of each message, 0 without tags.
        bodies: (body of an entry, its log position, how many of the records it holds).
    """

    first_offset: int
    places: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    bodies: list[tuple[bytes, int, int]] = field(default_factory=list)

    def add(self, behind: "Arrivals") -> None:
        self.places += behind.places
        self.sizes += behind.sizes
        self.codes += behind.codes
        self.bodies += behind.bodies

    def records(self) -> list[bytes]:
        """Copy the messages out of the entries. Most members never need them."""
        spans = zip(self.places, self.sizes, strict=True)
        return [
            body[place - position : place - position + size]
            for body, position, count in self.bodies
            for place, size in islice(spans, count)
        ]


@dataclass(slots=True)
class Folded:
    """The effects of a run of entries.

    An observer, such as the fold of Spark's tables, sets `changes` to a list. The features' modules
    `state` have the classes of changes. A change does not repeat the fields of its command.

    Attributes:
        results: one per entry.
        deleted_topics: topics whose queues were deleted, before the arrivals.
        arrivals: by topic and queue id.
        lite_arrivals: parents and lite topics with new messages.
        topics_changed: whether the name servers have to be told.
        changes: what changed, in order; None without an observer.
    """

    results: list[EntryRefused | None] = field(default_factory=list)
    deleted_topics: list[str] = field(default_factory=list)
    arrivals: dict[tuple[str, int], Arrivals] = field(default_factory=dict)
    lite_arrivals: list[tuple[str, bytes]] = field(default_factory=list)
    topics_changed: bool = False
    changes: list[object] | None = None

    def tell(self, change: Callable[[*V], object], *values: *V) -> None:
        """Record a change for the observer. Without an observer the value is not built."""
        if self.changes is not None:
            self.changes.append(change(*values))
