"""The rows that the filters of a query leave."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows that a query needs, of the range that its options name.

    Attributes:
        first: no entry before this one.
        last: no entry behind this one; None: no limit.
        groups: only these groups; None: all.
        topics: only messages of these topics; None: all.
        from_ms: no message that was stored earlier, in milliseconds since 1970; None: no limit.
        until_ms: no message that was stored later; None: no limit.
    """

    first: int = 0
    last: int | None = None
    groups: frozenset[str] | None = None
    topics: frozenset[str] | None = None
    from_ms: int | None = None
    until_ms: int | None = None
