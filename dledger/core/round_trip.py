"""The round-trip time of appends to one peer, and the time limit for an answer.

The limit follows TCP's retransmission timer (RFC 6298): the smoothed round trip plus four times its
smoothed deviation, with a minimum margin. It doubles with each missed answer. Entries that were
sent twice are not measured (Karn's rule), because the answer may be to either copy.
"""

from __future__ import annotations

# The least margin above the average round trip: two heartbeats. It is short enough to notice a
# lost batch soon, and long enough that one slow sync rarely causes a needless probe.
LEAST_WAIT_S = 0.2

# The upper bound of the limit. A usable link or disk answers sooner, and an append that was lost
# on an open connection waits at most this long until it is repeated.
MOST_WAIT_S = 4.0

# The weights of a new measurement in the two averages, and of the deviation: as in RFC 6298.
_AVERAGE_WEIGHT = 1 / 8
_DEVIATION_WEIGHT = 1 / 4
_DEVIATIONS = 4.0


class RoundTrip:
    """The round trips of one peer, each including the peer's sync. Times in seconds.

    Attributes:
        wait_s: the present time limit for an answer.
    """

    __slots__ = ("_average_s", "_deviation_s", "wait_s")

    def __init__(self) -> None:
        self._average_s = 0.0  # not measured yet
        self._deviation_s = 0.0
        self.wait_s = LEAST_WAIT_S

    def took(self, trip_s: float) -> None:
        """Add a measurement: an append that was sent once was acknowledged after `trip_s`."""
        if not self._average_s:
            self._average_s = trip_s
            self._deviation_s = trip_s / 2
        else:
            error = trip_s - self._average_s
            self._deviation_s += _DEVIATION_WEIGHT * (abs(error) - self._deviation_s)
            self._average_s += _AVERAGE_WEIGHT * error
        self.begin_anew()

    def missed(self) -> None:
        """Double the limit, because no answer came in time."""
        self.wait_s = min(2 * self.wait_s, MOST_WAIT_S)

    def begin_anew(self) -> None:
        """Compute the limit from the measurements alone, without the doublings."""
        margin_s = max(_DEVIATIONS * self._deviation_s, LEAST_WAIT_S)
        self.wait_s = min(self._average_s + margin_s, MOST_WAIT_S)
