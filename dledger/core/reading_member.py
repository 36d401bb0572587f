"""The part of a member's protocol that confirms reads: its own, and as a leader those of others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from dledger.core.following_member import FollowingMember
from dledger.core.reads.leader_lease import LeaderLease
from dledger.core.reads.member_reads import MemberReads
from dledger.core.reads.read_index import ReadIndex, ReadReady
from dledger.core.turn_output import Outgoing

# Reads that may be served, and reads that are lost.
NO_OUTCOMES: tuple[Sequence[ReadReady], Sequence[int]] = ((), ())


class ReadingMember(FollowingMember):
    """Linearizable reads on any member: see MemberReads."""

    _reads: MemberReads

    @abstractmethod
    def _broadcast_heartbeat(self, now: float) -> int:
        """Send one to everybody; the number of the round."""

    def request_read(self, ticket: int) -> None:
        """Begin a linearizable read, on any member. The outcome comes with `take_messages`."""
        self._reads.request(ticket, self._committed_for_reads)

    @property
    def commits_in_own_term(self) -> bool:
        """Whether this leader has committed an entry of its own term (then its commit index is
        as far as any predecessor's ever was).
        """
        return self.view.term_at(self.state.committed) == self.state.term

    @property
    def reads(self) -> ReadIndex | None:
        """A leader's open reads."""
        return self._reads.index

    @property
    def has_open_reads(self) -> bool:
        """Whether any read waits here for something, its own or another member's."""
        return self._reads.busy

    @property
    def lease(self) -> LeaderLease | None:
        """A leader's lease, where lease reads are on."""
        return self._reads.lease

    @property
    def _committed_for_reads(self) -> int | None:
        return self.state.committed if self.commits_in_own_term else None

    def _pursue_reads(self, now: float) -> None:
        """Have open reads confirmed, and those of others answered."""
        reads, state = self._reads, self.state
        if reads.needs_round(state.applied, now):
            self._broadcast_heartbeat(now)
        question = reads.question(state.leader, state.term, now)
        if state.leader is not None and question is not None:
            self._promise(state.leader, question)
        for peer, reply in reads.answers(state.term, state.applied):
            self._outgoing.append(Outgoing(peer, reply))
