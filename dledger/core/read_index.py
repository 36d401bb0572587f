"""Linearizable reads without a log entry: ReadIndex (Raft thesis 6.4).

The leader notes the commit index at the time of the read, and confirms by one round of heartbeats
that it still leads. Reads that wait for a round share it; a read never rides on a round that was
sent before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple


class ReadReady(NamedTuple):
    """The read `ticket` may be served from any state that includes `index`."""

    ticket: int
    index: int  # type: ignore[assignment]  # hides tuple.index


class _Waiting(NamedTuple):
    ticket: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    round: int


class ReadIndex:
    """The leader's open reads of one term."""

    __slots__ = ("_confirmed", "_early", "_quorum", "_self_id", "_waiting", "round")

    def __init__(self, self_id: str, voters: Sequence[str], quorum: int) -> None:
        self._self_id = self_id
        self._quorum = quorum
        self._confirmed = dict.fromkeys(voters, 0)
        self._waiting: deque[_Waiting] = deque()
        self._early: list[int] = []
        self.round = 0

    def next_round(self) -> int:
        """The number of the heartbeat broadcast about to be sent."""
        self.round += 1
        self._confirmed[self._self_id] = self.round
        return self.round

    def hold(self, ticket: int) -> None:
        """Keep a read until an entry of the leader's own term is committed: before that the
        leader cannot know how far the log is committed (thesis 6.4, step 1).
        """
        self._early.append(ticket)

    def release_held(self, committed: int) -> None:
        """An entry of the own term is committed now: the held reads begin."""
        for ticket in self._early:
            self.add(ticket, committed)
        self._early.clear()

    def add(self, ticket: int, committed: int) -> None:
        """Begin a read; only a round that is still to be sent confirms it."""
        self._waiting.append(_Waiting(ticket, committed, self.round + 1))

    @property
    def needs_round(self) -> bool:
        """Whether a read waits for a round that has not been sent."""
        return bool(self._waiting) and self._waiting[-1].round > self.round

    def confirm(self, voter: str, round_number: int) -> None:
        """`voter` followed this leader when it saw that round."""
        self._confirmed[voter] = max(self._confirmed[voter], round_number)

    def take_ready(self) -> list[ReadReady]:
        """The reads a quorum has confirmed."""
        if not self._waiting:
            return []
        rounds = sorted(self._confirmed.values(), reverse=True)
        quorum_round = rounds[self._quorum - 1]
        ready = []
        while self._waiting and self._waiting[0].round <= quorum_round:
            waiting = self._waiting.popleft()
            ready.append(ReadReady(waiting.ticket, waiting.index))
        return ready

    def take_all(self) -> list[int]:
        """Every open read: this member leads no more."""
        tickets = [*self._early, *(waiting.ticket for waiting in self._waiting)]
        self._early.clear()
        self._waiting.clear()
        return tickets
