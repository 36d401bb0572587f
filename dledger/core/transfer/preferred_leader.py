"""Decides when a leader hands over to the member that the operator prefers as leader.

The preferred member must first be healthy for a while. After each attempt, and each time its
leadership ended soon, the next attempt waits twice as long, up to a bound. So a preferred member
with a bad disk costs the group a few elections an hour, and not one every second.
"""

from __future__ import annotations

# How long the preferred member must be healthy before the first attempt, in election timeouts.
FIRST_WAIT_TIMEOUTS = 4.0
# The longest wait between attempts: some four minutes with the default timeout.
LAST_WAIT_TIMEOUTS = 512.0
# A leadership of the preferred member that lasts so long resets the wait: a minute by default.
STABLE_TIMEOUTS = 120.0


class PreferredLeader:
    """One member's view of the preferred leader. It lives as long as the process."""

    __slots__ = ("_healthy_since", "_led_since", "_timeout_s", "_wait_s", "name")

    def __init__(self, name: str | None, timeout_s: float) -> None:
        self.name = name
        self._timeout_s = timeout_s
        self._wait_s = FIRST_WAIT_TIMEOUTS * timeout_s
        self._led_since: float | None = None
        self._healthy_since: float | None = None

    def observe(self, leader: str | None, now: float) -> None:
        """Note the present leader. None, an unknown leader, may still be the last known one."""
        if leader == self.name:
            if self._led_since is None:
                self._led_since = now
        elif leader is not None and self._led_since is not None:
            stable = now - self._led_since >= STABLE_TIMEOUTS * self._timeout_s
            self._led_since = None
            self._healthy_since = None
            if stable:
                self._wait_s = FIRST_WAIT_TIMEOUTS * self._timeout_s
            else:
                self._wait_longer()

    def due(self, healthy: bool, now: float) -> bool:
        """Whether to hand over now. `healthy`: the preferred member answers and has caught up."""
        if not healthy:
            self._healthy_since = None
            return False
        if self._healthy_since is None:
            self._healthy_since = now
        if now - self._healthy_since < self._wait_s:
            return False
        self._healthy_since = None
        self._wait_longer()
        return True

    def _wait_longer(self) -> None:
        self._wait_s = min(2 * self._wait_s, LAST_WAIT_TIMEOUTS * self._timeout_s)
