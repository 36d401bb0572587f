"""Flushing later: entries count on a member once they are written, and are synced in a while.

As in Java DLedger and RocketMQ with `ASYNC_FLUSH`. A process that is killed loses nothing, as the
operating system has what was written. A machine that loses power loses what came since its last
sync, though it was acknowledged: docs/library.md says when the others make up for it. Votes and
terms are always synced before anybody is told.
"""

from __future__ import annotations

_NEVER = float("inf")

Written = tuple[int, int]  # the last entry, and the store's epoch


class FlushDelay:
    """When the writes of one node count, and when they are to be synced. Times in seconds.

    Args:
        interval_s: entries wait for a sync for so long at most.
        patience_s: a sync that takes longer than this says that the disk is stuck. Nothing counts
            any more until it ends, or all that is written meanwhile could be lost.
        written: what the log holds at the start.
    """

    def __init__(self, interval_s: float, patience_s: float, written: Written) -> None:
        self._interval_s = interval_s
        self._patience_s = patience_s
        self._counted = written
        self._began_at: float | None = None
        self._promises = False
        self.due_at = _NEVER

    def counts(self, written: Written, now: float) -> bool:
        """Whether more counts than before: everything up to `written`.

        Not while a term or vote is on its way to the disk, which entries must not overtake.
        """
        if written == self._counted or self._promises:
            return False
        if self._began_at is not None and now - self._began_at > self._patience_s:
            return False
        self._counted = written
        self.due_at = min(self.due_at, now + self._interval_s)
        return True

    def began(self, now: float, promises: bool) -> None:
        """A sync of all that is written began; `promises`: with a term or vote."""
        self._began_at = now
        self._promises = promises
        self.due_at = _NEVER

    def ended(self) -> None:
        """It ended."""
        self._began_at = None
        self._promises = False
