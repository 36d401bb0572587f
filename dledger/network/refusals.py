"""Counts the callers that a process refused, and logs them at a limited rate."""

from __future__ import annotations

import logging

import trio

logger = logging.getLogger(__name__)

# A refused caller tries again every second. One line for each reason in this time is enough.
QUIET_S = 60.0


class Refusals:
    """The refused callers of one process.

    Attributes:
        count: callers refused so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._quiet_until: dict[str, float] = {}  # by kind
        self._unsaid: dict[str, int] = {}

    def add(self, kind: str, problem: str) -> None:
        """Count one more, and log `problem` if its `kind` is due."""
        self.count += 1
        now = trio.current_time()
        if now < self._quiet_until.get(kind, now):
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
            return
        self._quiet_until[kind] = now + QUIET_S
        unsaid = self._unsaid.pop(kind, 0)
        before = f" ({unsaid} more for such a reason before)" if unsaid else ""
        logger.warning("refused %s%s", problem, before)
