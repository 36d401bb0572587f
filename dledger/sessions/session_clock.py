"""The clock of a group's sessions: the time during which the group had a leader.

The monotonic clocks of members share no beginning, and wall clocks are stepped. So a new leader
continues from the latest time in the log, and counts from there by its own monotonic clock. While
there is no leader, time stands still: an outage ends no session.
"""

from __future__ import annotations


class SessionClock:
    """The time that a leader writes into its session entries."""

    __slots__ = ("_base_ms", "_base_s", "_term")

    def __init__(self) -> None:
        self._term = -1
        self._base_ms = 0
        self._base_s = 0.0

    def now_ms(self, now_s: float, term: int, applied_ms: int) -> int:
        """Return the time now.

        Args:
            now_s: this process's monotonic clock, in seconds.
            term: the term this node leads in.
            applied_ms: the time of the last session entry that was applied here.
        """
        if term != self._term:
            self._term = term
            self._base_ms, self._base_s = applied_ms, now_s
        own_ms = self._base_ms + int((now_s - self._base_s) * 1000)
        if own_ms < applied_ms:  # an entry of an earlier leader was applied after the election
            self._base_ms, self._base_s = applied_ms, now_s
            return applied_ms
        return own_ms
