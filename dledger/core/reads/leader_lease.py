"""Until when no other member can possibly lead: what voters promised, seen from the leader.

A voter that hears a leader refuses every candidate for one election timeout of its own clock
(thesis 6.4.1). The leader counts that time from the moment it *sent* the heartbeat, by its own
clock, and takes off what the two clocks may differ: if both run within `max_drift` of true time,
the voter's promise of P seconds lasts at least P / (1 + drift), and L seconds on the leader's clock
last at most L / (1 - drift). So L = P (1 - drift) / (1 + drift) is over before the promise is.

A leader that told another member to stand has broken its voters' promises itself: its lease is
void for the rest of its term, because nobody knows when that message arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container

from dledger.core.membership.quorum import Quorum

_NEVER = float("-inf")
_ALWAYS = float("inf")
# Rounds whose time of sending is remembered. At ten heartbeats a second a few would do; reads may
# add a round each turn, and an answer takes milliseconds. A forgotten round prolongs nothing.
MAX_ROUNDS = 1024
MS_PER_S = 1000.0


class LeaderLease:
    """The lease of one leader in one term. Times in seconds of its own monotonic clock."""

    __slots__ = ("_quorum", "_rounds", "_share", "_until", "_void")

    def __init__(self, self_id: str, quorum: Quorum, max_drift: float) -> None:
        self._quorum = quorum
        self._share = (1.0 - max_drift) / (1.0 + max_drift)
        self._until = {self_id: _ALWAYS}  # while it leads it votes for nobody else
        self._rounds: deque[tuple[int, float]] = deque(maxlen=MAX_ROUNDS)
        self._void = False

    def follow(self, quorum: Quorum, members: Container[str]) -> None:
        """Another configuration is in force. Quorums of two that follow one another meet, so what
        a quorum of this one promised keeps the candidates of the one before out as well.
        """
        self._quorum = quorum
        self._until = {name: until for name, until in self._until.items() if name in members}

    def sent(self, round_number: int, now: float) -> None:
        """A round of heartbeats leaves, not before `now`."""
        self._rounds.append((round_number, now))

    def confirm(self, voter: str, round_number: int, promised_ms: int) -> None:
        """`voter` saw that round, and refuses other candidates for so long from then on."""
        if not promised_ms or not self._rounds:
            return
        at = round_number - self._rounds[0][0]
        if not 0 <= at < len(self._rounds):
            return
        until = self._rounds[at][1] + promised_ms / MS_PER_S * self._share
        self._until[voter] = max(self._until.get(voter, _NEVER), until)

    def end(self) -> None:
        """Never again in this term."""
        self._void = True

    def holds(self, now: float) -> bool:
        """Whether nobody else can lead now."""
        return now < self.until

    @property
    def until(self) -> float:
        """When the lease runs out, unless it is prolonged."""
        if self._void:
            return _NEVER
        return self._quorum.reached(self._until, _NEVER)
