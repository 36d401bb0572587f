"""Counts the callers that a process refused, and says so without filling the log."""

from __future__ import annotations

import logging

import trio

logger = logging.getLogger(__name__)

# Who is refused comes back every second. One line in this time for each reason is enough to see
# that it goes on.
QUIET_S = 60.0


class Refusals:
    """Of one process.

    Attributes:
        count: callers refused so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._quiet_until: dict[str, float] = {}  # by kind
        self._unsaid: dict[str, int] = {}

    def add(self, kind: str, problem: str) -> None:
        """One more. `kind` is one of a few words; `problem` is for people."""
        self.count += 1
        now = trio.current_time()
        if now < self._quiet_until.get(kind, now):
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
            return
        self._quiet_until[kind] = now + QUIET_S
        unsaid = self._unsaid.pop(kind, 0)
        before = f" ({unsaid} more for such a reason before)" if unsaid else ""
        logger.warning("refused %s%s", problem, before)
