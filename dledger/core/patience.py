"""The clock by which a member waits for others: it stands still while the member itself was late.

A paused virtual machine, a stopped process or a busy host keeps a member from hearing. When it goes
on, the silence of that time says nothing about the others: their messages lie in its sockets, or
they were stopped as well. So every wait for another member goes by this clock: elections, the
leader's check that a quorum answers, transfers, reads, retries. A member that is on time looks
again within a short interval, so this clock counts little more than that between two looks, however
much later the second one came.

Values that others rely on go by true time instead: the leader's lease, the age of a state that is
read, and the moments at which all leaders of a process send their heartbeats. `true` gives it. A
voter's promise to a leader may go by this clock, because that only makes it last longer.
"""

from __future__ import annotations

from math import inf, nextafter

# How much time counts between two looks, in intervals. A look that comes up to half an interval
# late counts in full: an ordinary delay does not put off that the loss of a leader is noticed.
MOST_INTERVALS = 1.5

# Delays whose place in time is remembered. An older time is taken for earlier than it was.
MAX_DELAYS = 64


class Patience:
    """One member's clock for waiting. Times in seconds.

    Args:
        look_interval_s: how long after a look the next one is due.
        now: when the member starts, by its own clock.

    Attributes:
        lost_s: how late the member came in all: this clock is so much behind the member's own.
        delays: how often it came late.
        next_look_at: when the member must look again, by its own clock, to be on time.
    """

    __slots__ = (
        "_delays",
        "_interval_s",
        "_looked_at",
        "_most_s",
        "delays",
        "lost_s",
        "next_look_at",
    )

    def __init__(self, look_interval_s: float, now: float) -> None:
        self._interval_s = look_interval_s
        self._most_s = MOST_INTERVALS * look_interval_s
        self._looked_at = now
        self.next_look_at = now + look_interval_s
        # The time by this clock when the member came late, and `lost_s` until then.
        self._delays: list[tuple[float, float]] = []
        self.lost_s = 0.0
        self.delays = 0

    def look(self, now: float) -> None:
        """Note that the member acts at `now`, by its own clock. Call this before anything else."""
        late_s = now - self._looked_at - self._most_s
        if late_s > 0.0:
            self._delays.append((self._looked_at - self.lost_s, self.lost_s))
            if len(self._delays) > MAX_DELAYS:
                self._delays[:2] = [(self._delays[1][0], 0.0)]
            self.lost_s += late_s
            self.delays += 1
        self._looked_at = now
        self.next_look_at = now + self._interval_s

    def at(self, now: float) -> float:
        """Return the time by this clock when the member's own clock shows `now`."""
        return now - self.lost_s

    def due(self, deadline: float) -> float:
        """Return when, by the member's own clock, a deadline of this clock is reached."""
        if not self.lost_s:
            return deadline
        due = deadline + self.lost_s
        while due - self.lost_s < deadline:  # rounded down: the deadline would not be reached yet
            due = nextafter(due, inf)
        return due

    def true(self, at: float) -> float:
        """Return what the member's own clock showed at a past or present time of this clock."""
        lost_s = self.lost_s
        for began_at, lost_before_s in reversed(self._delays):
            if at > began_at:
                break
            lost_s = lost_before_s
        return at + lost_s
