"""The rows that the filters of a query leave."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows that a query needs, of the range that its options name. None is no limit.

    Entries first..last of these groups; only messages of these topics that were stored from
    `from_ms` until `until_ms`, both included, in milliseconds since 1970.
    """

    first: int = 0
    last: int | None = None
    groups: frozenset[str] | None = None
    topics: frozenset[str] | None = None
    from_ms: int | None = None
    until_ms: int | None = None
