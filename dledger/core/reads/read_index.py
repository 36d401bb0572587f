"""Linearizable reads without a log entry: ReadIndex (Raft thesis 6.4).

The leader notes the commit index at the time of the read, and confirms by one round of heartbeats
that it still leads. Reads that wait for a round share it, the leader's own and those of its
followers. A round that was sent before a read never confirms that read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import NamedTuple

from dledger.core.membership.quorum import Quorum


class ReadReady(NamedTuple):
    """The read `ticket` may be served from any state that includes `index`."""

    ticket: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    by_lease: bool = False


class ReadLost(NamedTuple):
    """The read `ticket` is not served: this member stopped leading, or else the time is over."""

    ticket: int
    stopped_leading: bool = False


class RemoteRead(NamedTuple):
    """A follower's question on behalf of its own reads."""

    peer: str
    number: int


class RemoteReady(NamedTuple):
    """The answer to a follower's question."""

    read: RemoteRead
    index: int  # type: ignore[assignment]  # hides tuple.index


class _Waiting(NamedTuple):
    ticket: int | RemoteRead
    index: int  # type: ignore[assignment]  # hides tuple.index
    round: int


class ReadIndex:
    """The leader's open reads of one term.

    Attributes:
        confirmed: the last round that each member answered.
        round: the number of the last round.
    """

    __slots__ = (
        "_early",
        "_early_remote",
        "_quorum",
        "_remote_ready",
        "_self_id",
        "_waiting",
        "confirmed",
        "round",
    )

    def __init__(self, self_id: str, quorum: Quorum) -> None:
        self._self_id = self_id
        self._quorum = quorum
        self.confirmed: dict[str, int] = {}
        self._waiting: deque[_Waiting] = deque()
        self._early: list[int] = []
        # The latest question of each follower covers its earlier ones.
        self._early_remote: dict[str, RemoteRead] = {}
        self._remote_ready: list[RemoteReady] = []
        self.round = 0

    def follow(self, quorum: Quorum, members: Container[str]) -> None:
        """Switch to another configuration: confirm by `quorum`, and forget removed members."""
        self._quorum = quorum
        self.confirmed = {
            name: number for name, number in self.confirmed.items() if name in members
        }

    def next_round(self) -> int:
        """Begin a round of heartbeats; return its number."""
        self.round += 1
        self.confirmed[self._self_id] = self.round
        return self.round

    def hold(self, ticket: int | RemoteRead) -> None:
        """Hold a read until an entry of the leader's own term is committed: before that the leader
        cannot know how far the log is committed (thesis 6.4, step 1).
        """
        if isinstance(ticket, RemoteRead):
            self._early_remote[ticket.peer] = ticket
        else:
            self._early.append(ticket)

    def release_held(self, committed: int) -> None:
        """Begin the held reads: an entry of the leader's own term is committed now."""
        held: list[int | RemoteRead] = [*self._early, *self._early_remote.values()]
        for ticket in held:
            self.add(ticket, committed)
        self._early.clear()
        self._early_remote.clear()

    def add(self, ticket: int | RemoteRead, committed: int) -> None:
        """Begin a read; only a round that has not been sent yet confirms it."""
        self._waiting.append(_Waiting(ticket, committed, self.round + 1))

    @property
    def has_open(self) -> bool:
        """Whether a read is open, of this member or of a follower."""
        return bool(self._waiting or self._early or self._early_remote or self._remote_ready)

    @property
    def needs_round(self) -> bool:
        """Whether a read waits for a round that has not been sent."""
        return bool(self._waiting) and self._waiting[-1].round > self.round

    def confirm(self, member: str, round_number: int) -> None:
        """Note that `member` followed this leader when it saw the round."""
        self.confirmed[member] = max(self.confirmed.get(member, 0), round_number)

    def take_ready(self) -> list[ReadReady]:
        """Return this member's confirmed reads; `take_remote_ready` has those of followers."""
        if not self._waiting:
            return []
        return self._take(self._quorum.reached(self.confirmed, 0), by_lease=False)

    def take_by_lease(self) -> list[ReadReady]:
        """Return all reads that have begun: by the lease, no other member leads."""
        return self._take(self.round + 1, by_lease=True)

    def _take(self, up_to_round: float, *, by_lease: bool) -> list[ReadReady]:
        ready = []
        while self._waiting and self._waiting[0].round <= up_to_round:
            ticket, index, _ = self._waiting.popleft()
            if isinstance(ticket, RemoteRead):
                self._remote_ready.append(RemoteReady(ticket, index))
            else:
                ready.append(ReadReady(ticket, index, by_lease))
        return ready

    def take_remote_ready(self) -> list[RemoteReady]:
        """Return the confirmed questions of followers, with their indexes."""
        ready, self._remote_ready = self._remote_ready, []
        return ready

    def drop(self, tickets: Container[int]) -> None:
        """Forget reads that were given up."""
        self._early = [ticket for ticket in self._early if ticket not in tickets]
        self._waiting = deque(read for read in self._waiting if read.ticket not in tickets)

    def take_all(self) -> list[int]:
        """Return and forget this member's own reads, because it stopped leading. Followers repeat
        their questions to the next leader.
        """
        tickets = [*self._early]
        tickets += [
            read.ticket for read in self._waiting if not isinstance(read.ticket, RemoteRead)
        ]
        self._early.clear()
        self._waiting.clear()
        return tickets
