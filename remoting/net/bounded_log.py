"""A bound on the lines that clients can make a server write to its log."""

import logging
from collections.abc import Callable
from typing import Final

# A client that sends nonsense without end would fill the disk, at 100 KB a second.
LINES_A_PERIOD: Final = 20
PERIOD_SECONDS: Final = 60.0


class BoundedLog(logging.Filter):
    """Passes 20 warnings of one kind a minute; the next that passes tells how many were left out.

    Warnings of one kind have the same text before its values are put in. Errors pass always: they
    are defects, and few. Add it to the handlers of a server's program.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        # By kind: when its period began, and how many came since. The kinds are in the code, so
        # that there are few.
        self._periods: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write this record; it may be given a further half-sentence."""
        if record.levelno != logging.WARNING:
            return True
        now = self._clock()
        began, count = self._periods.get(record.msg, (now, 0))
        if now < began + PERIOD_SECONDS:
            self._periods[record.msg] = began, count + 1
            return count < LINES_A_PERIOD
        self._periods[record.msg] = now, 1
        if count > LINES_A_PERIOD:
            text = record.getMessage()
            record.msg = "%s (%d lines like it were left out)"
            record.args = (text, count - LINES_A_PERIOD)
        return True
