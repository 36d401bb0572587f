"""Tells that the system starts no thread, once in a while: the process goes on without it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from dledger.system_refusals import told

logger = logging.getLogger(__name__)

# The line is repeated so often while threads are missing.
TELL_S = 600.0


class RefusedThreads:
    """The lines of one process, from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_at = float("-inf")

    def tell(self, error: BaseException) -> None:
        """A thread was refused, and its work is done on the event loop."""
        if (now := self._clock()) >= self._told_at + TELL_S:
            self._told_at = now
            logger.warning("going on slower, without a thread: %s", told(error))


NO_THREAD = RefusedThreads()
