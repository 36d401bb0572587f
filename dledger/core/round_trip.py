"""How long one peer takes to answer an append, and how long to wait for it before it is missed.

The rule is that of TCP's retransmission timer (RFC 6298): the smoothed round trip plus four times
its smoothed deviation, but at least some margin; doubled with each answer that is missed. What was
sent twice is not measured (Karn's rule): nothing tells which of the two was answered.
"""

from __future__ import annotations

# How much longer to wait than a peer takes on the average, at the least: two heartbeats. So a lost
# batch is found soon, and one slow sync rarely costs a needless probe.
LEAST_WAIT_S = 0.2

# The most. No link or disk that is of any use takes so long, and an append that was lost while the
# connection held is not repeated any sooner.
MOST_WAIT_S = 4.0

# The weights of a new measurement in the two averages, and of the deviation: as in RFC 6298.
_AVERAGE_WEIGHT = 1 / 8
_DEVIATION_WEIGHT = 1 / 4
_DEVIATIONS = 4.0


class RoundTrip:
    """The round trips of one peer, each with the sync that it includes. Times in seconds.

    Attributes:
        wait_s: how long to wait for an answer now.
    """

    __slots__ = ("_average_s", "_deviation_s", "wait_s")

    def __init__(self) -> None:
        self._average_s = 0.0  # not measured yet
        self._deviation_s = 0.0
        self.wait_s = LEAST_WAIT_S

    def took(self, seconds: float) -> None:
        """An append that was sent once was acknowledged after so long."""
        if not self._average_s:
            self._average_s = seconds
            self._deviation_s = seconds / 2
        else:
            error = seconds - self._average_s
            self._deviation_s += _DEVIATION_WEIGHT * (abs(error) - self._deviation_s)
            self._average_s += _AVERAGE_WEIGHT * error
        self.begin_anew()

    def missed(self) -> None:
        """No answer came in time: wait twice as long for the next one."""
        self.wait_s = min(2 * self.wait_s, MOST_WAIT_S)

    def begin_anew(self) -> None:
        """Wait for as long as the measurements say: what was missed has been explained."""
        margin_s = max(_DEVIATIONS * self._deviation_s, LEAST_WAIT_S)
        self.wait_s = min(self._average_s + margin_s, MOST_WAIT_S)
