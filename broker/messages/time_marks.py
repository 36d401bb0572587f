"""When parts of the log were written: enough to drop by age without reading the log."""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

# Precision of ages; retention is in hours.
MARK_EVERY_MS: Final = 10 * 60 * 1000

# A month of marks. When there are more, every second one is dropped: old parts need less precision.
MAX_MARKS: Final = 4096


@dataclass(slots=True)
class TimeMarks:
    """Marks (time, index): the newest message in the entries before `index` is of `time`.

    Only the fold adds marks, so they are equal on every member. Times are those of messages, which
    never go back, in milliseconds since 1970.

    Attributes:
        times_ms: of the marks, ascending.
        indexes: of the marks, ascending.
        next_ms: a message of this time or later makes the next mark.
    """

    times_ms: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    next_ms: int = 0

    def add(self, before_ms: int, index: int, time_ms: int) -> None:
        """Mark entry `index` with a message of `time_ms`; the newest message before it is of
        `before_ms`.
        """
        self.times_ms.append(before_ms)
        self.indexes.append(index)
        self.next_ms = time_ms + MARK_EVERY_MS
        if len(self.indexes) > MAX_MARKS:
            del self.times_ms[1:-1:2], self.indexes[1:-1:2]

    def first_since(self, time_ms: int) -> int:
        """Return an index before which all messages were stored at `time_ms` or earlier; 0 for
        none.
        """
        at = bisect_right(self.times_ms, time_ms)
        return self.indexes[at - 1] if at else 0

    @property
    def earliest_ms(self) -> int:
        """When the oldest part of the log was written, up to ten minutes late; -1 if unknown."""
        known = [time_ms for time_ms in self.times_ms[:2] if time_ms]
        if known:
            return known[0]
        return self.next_ms - MARK_EVERY_MS if self.indexes else -1

    def drop_before(self, index: int) -> None:
        at = max(0, bisect_right(self.indexes, index) - 1)
        del self.times_ms[:at], self.indexes[:at]
