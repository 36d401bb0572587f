"""What folding a run of entries did, besides changing the state."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EntryRefused:
    """The result of an entry that was passed over."""

    reason: str


@dataclass(slots=True)
class Arrivals:
    """The messages that came to one queue in one run of entries.

    Attributes:
        first_offset: of the first of them.
        units: where they lie, as in consume queues.
        sources: the body of an entry that has each of them, and from where to where in it.
        tags_codes: the hashes of their tags.
    """

    first_offset: int
    units: list[bytes] = field(default_factory=list)
    sources: list[tuple[bytes, int, int]] = field(default_factory=list)
    tags_codes: set[int] = field(default_factory=set)

    def records(self) -> list[bytes]:
        """The messages, as the log has them: copies of what most members never look at."""
        return [body[begin:end] for body, begin, end in self.sources]


@dataclass(slots=True)
class Folded:
    """The effects of a run of entries.

    Attributes:
        results: one an entry; None, or `EntryRefused`.
        deleted_topics: their queues are gone; they went before the arrivals came.
        arrivals: by topic and queue id.
        topics_changed: whether the name servers have to be told.
    """

    results: list[EntryRefused | None] = field(default_factory=list)
    deleted_topics: list[str] = field(default_factory=list)
    arrivals: dict[tuple[str, int], Arrivals] = field(default_factory=dict)
    topics_changed: bool = False
