"""Logs once in a while that the system starts no thread; the process goes on without it."""

from __future__ import annotations

import logging
import time

from dledger.system_refusals import told

logger = logging.getLogger(__name__)

# The line is repeated after this time while threads are missing.
TELL_S = 600.0


class RefusedThreads:
    def __init__(self) -> None:
        self._logged_at = float("-inf")

    def tell(self, error: BaseException) -> None:
        """Log that a thread was refused, so that its work runs on the event loop. Called in any
        thread.
        """
        if (now := time.monotonic()) >= self._logged_at + TELL_S:
            self._logged_at = now
            logger.warning("going on slower, without a thread: %s", told(error))


NO_THREAD = RefusedThreads()
