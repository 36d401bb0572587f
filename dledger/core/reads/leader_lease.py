"""The leader's lease: the time until which the promises of voters keep other members from leading.

A voter that hears a leader refuses every candidate for one election timeout of its own clock
(thesis 6.4.1). The leader counts that time from the moment it *sent* the heartbeat, by its own
clock, and subtracts the possible difference of the two clocks. If both run within `max_drift` of
true time, the voter's promise of P seconds lasts at least P / (1 + drift), and L seconds on the
leader's clock last at most L / (1 - drift). So L = P (1 - drift) / (1 + drift) ends before the
promise does.

A leader that told another member to stand has released its voters from their promises. Its lease is
void for the rest of its term, because it cannot know when that message arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container

from dledger.core.membership.quorum import Quorum

_NEVER = float("-inf")
_ALWAYS = float("inf")
# The number of rounds whose time of sending is kept. At ten heartbeats a second a few would do;
# reads may add a round each turn, and an answer takes milliseconds. An answer to a forgotten round
# does not prolong the lease.
MAX_ROUNDS = 1024
MS_PER_S = 1000.0


class LeaderLease:
    """The lease of one leader in one term. Times in seconds of its own monotonic clock."""

    __slots__ = ("_quorum", "_rounds", "_share", "_until", "_void")

    def __init__(self, self_id: str, quorum: Quorum, max_drift: float) -> None:
        self._quorum = quorum
        self._share = (1.0 - max_drift) / (1.0 + max_drift)
        self._until = {self_id: _ALWAYS}  # a leader votes for no other member
        self._rounds: deque[tuple[int, float]] = deque(maxlen=MAX_ROUNDS)
        self._void = False

    def follow(self, quorum: Quorum, members: Container[str]) -> None:
        """Switch to another configuration. Quorums of successive configurations meet, so the
        promises of a new quorum also keep out candidates of the previous configuration.
        """
        self._quorum = quorum
        self._until = {name: until for name, until in self._until.items() if name in members}

    def sent(self, round_number: int, now: float) -> None:
        """Note that a round of heartbeats leaves at `now` or later."""
        self._rounds.append((round_number, now))

    def confirm(self, voter: str, round_number: int, promised_ms: int) -> None:
        """Note that `voter` saw the round, and from then on refuses other candidates for
        `promised_ms`.
        """
        if not promised_ms or not self._rounds:
            return
        at = round_number - self._rounds[0][0]
        if not 0 <= at < len(self._rounds):
            return
        until = self._rounds[at][1] + promised_ms / MS_PER_S * self._share
        self._until[voter] = max(self._until.get(voter, _NEVER), until)

    def end(self) -> None:
        """Void the lease for the rest of the term."""
        self._void = True

    def holds(self, now: float) -> bool:
        """Return whether no other member can lead now."""
        return now < self.until

    @property
    def until(self) -> float:
        """When the lease ends, unless it is prolonged."""
        if self._void:
            return _NEVER
        return self._quorum.reached(self._until, _NEVER)
