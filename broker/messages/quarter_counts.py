"""How many messages there were at the start of each quarter of an hour, for two days.

Local days begin at a quarter of an hour in every time zone, so the messages of a day can be counted
in any time zone.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

QUARTER_MS: Final = 15 * 60 * 1000

# Yesterday began 49 hours ago at most, when clocks are set back for the winter.
MAX_QUARTERS: Final = 49 * 4 + 1


@dataclass(slots=True)
class QuarterCounts:
    """Marks (time, count): `count` messages are older than the quarter that begins at `time`.

    A quarter without messages has no mark. Times are milliseconds since 1970.

    Attributes:
        begins_ms: of the marked quarters, ascending.
        counts: of the messages before each, ascending.
        next_ms: a message of this time or later makes the next mark.
    """

    begins_ms: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    next_ms: int = 0

    def add(self, time_ms: int, before: int) -> None:
        """Mark the quarter of a message that `before` messages precede."""
        begin_ms = time_ms - time_ms % QUARTER_MS
        self.begins_ms.append(begin_ms)
        self.counts.append(before)
        self.next_ms = begin_ms + QUARTER_MS
        if len(self.begins_ms) > MAX_QUARTERS:
            del self.begins_ms[0], self.counts[0]

    def before(self, time_ms: int, total: int) -> int:
        """Return how many of all `total` messages came before a quarter that begins at `time_ms`.

        Messages before the first mark count as earlier.
        """
        at = bisect_left(self.begins_ms, time_ms)
        return self.counts[at] if at < len(self.counts) else total
