"""How many messages there were when a quarter of an hour began, for two days.

Local days begin at a quarter of an hour in every time zone, so the members of a group can tell the
messages of a day apart wherever they are.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

QUARTER_MS: Final = 15 * 60 * 1000

# Yesterday's begin lies 49 hours back at most, when a clock is set back for the winter.
MAX_QUARTERS: Final = 49 * 4 + 1


@dataclass(slots=True)
class QuarterCounts:
    """Marks (time, count): so many messages are older than the quarter that begins at the time.

    A quarter without messages has no mark. Times are milliseconds since 1970.

    Attributes:
        begins_ms: of the marked quarters, rising.
        counts: of the messages before each, rising.
        next_ms: a message of this time or later makes the next mark.
    """

    begins_ms: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    next_ms: int = 0

    def add(self, time_ms: int, before: int) -> None:
        """The first message of a quarter has come, and `before` messages had come earlier."""
        begin_ms = time_ms - time_ms % QUARTER_MS
        self.begins_ms.append(begin_ms)
        self.counts.append(before)
        self.next_ms = begin_ms + QUARTER_MS
        if len(self.begins_ms) > MAX_QUARTERS:
            del self.begins_ms[0], self.counts[0]

    def before(self, time_ms: int, total: int) -> int:
        """How many of all `total` messages came before a quarter that begins at `time_ms`.

        What came before the first mark counts as earlier.
        """
        at = bisect_left(self.begins_ms, time_ms)
        return self.counts[at] if at < len(self.counts) else total
