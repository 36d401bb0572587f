"""Flushing later: entries count on a member once they are written, and are synced in a while.

As in Java DLedger and RocketMQ with `ASYNC_FLUSH`. A killed process loses nothing: the operating
system has the written bytes. A machine that loses power loses the entries since its last sync,
though they were acknowledged: docs/library.md says when the other members still have them. Votes
and terms are always synced before a message tells them.
"""

from __future__ import annotations

_NEVER = float("inf")

Written = tuple[int, int]  # the last entry, and the store's epoch


class FlushDelay:
    """When the writes of one node count, and when they are due to be synced. Times in seconds.

    Args:
        interval_s: entries wait for a sync for so long at most.
        patience_s: a sync that takes longer than this shows that the disk is stuck. Then no new
            write counts until the sync ends: an unbounded number could be lost.
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
        """Whether everything up to `written` counts now, and did not before.

        False while a term or vote is being synced: entries must not overtake it.
        """
        if written == self._counted or self._promises:
            return False
        if self._began_at is not None and now - self._began_at > self._patience_s:
            return False
        self._counted = written
        self.due_at = min(self.due_at, now + self._interval_s)
        return True

    def began(self, now: float, promises: bool) -> None:
        """A sync of everything written began; `promises`: it includes a term or vote."""
        self._began_at = now
        self._promises = promises
        self.due_at = _NEVER

    def ended(self) -> None:
        """The sync ended."""
        self._began_at = None
        self._promises = False
