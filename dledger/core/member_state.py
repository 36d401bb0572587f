"""The present state of a member: role, term, vote, leader, and the growing watermarks."""

from __future__ import annotations

from enum import Enum

from dledger.core.agenda import APPLY, TELL, WRITE, Agenda
from dledger.core.hard_state import HardState
from dledger.core.membership.membership import ChangeOutcome, Membership
from dledger.errors import InvariantBroken


class Role(Enum):
    """Raft's roles; a pre-candidate asks for pre-votes before it starts a new term (thesis 9.6)."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class RoleEvent(Enum):
    """The events that can change a role."""

    ELECTION_TIMEOUT = "election timeout"
    PRE_VOTES_WON = "won the pre-vote"
    VOTES_WON = "won the election"
    HIGHER_TERM = "saw a higher term"
    LEADER_SEEN = "heard the leader of its term"
    QUORUM_LOST = "lost touch with a quorum"
    DISK_STALLED = "its own disk finishes no sync"
    HANDED_OVER = "was told by its leader to stand"
    REMOVED = "no longer votes in its group"


_F, _P, _C, _L = Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEADER

# All transitions. A pair that is missing cannot happen; attempting it is a bug, not a no-op.
ROLE_CHANGES: dict[tuple[Role, RoleEvent], Role] = {
    (_F, RoleEvent.ELECTION_TIMEOUT): _P,
    (_P, RoleEvent.ELECTION_TIMEOUT): _P,
    (_C, RoleEvent.ELECTION_TIMEOUT): _P,
    (_P, RoleEvent.PRE_VOTES_WON): _C,
    (_C, RoleEvent.VOTES_WON): _L,
    (_F, RoleEvent.HIGHER_TERM): _F,
    (_P, RoleEvent.HIGHER_TERM): _F,
    (_C, RoleEvent.HIGHER_TERM): _F,
    (_L, RoleEvent.HIGHER_TERM): _F,
    (_F, RoleEvent.LEADER_SEEN): _F,
    (_P, RoleEvent.LEADER_SEEN): _F,
    (_C, RoleEvent.LEADER_SEEN): _F,
    (_L, RoleEvent.QUORUM_LOST): _F,
    (_L, RoleEvent.DISK_STALLED): _F,
    (_L, RoleEvent.REMOVED): _F,
    (_F, RoleEvent.HANDED_OVER): _C,
}


class MemberState:
    """One member's view of itself. Watermarks only grow, except that a truncation of uncommitted
    entries lowers `durable`.

    Attributes:
        agenda: what the member has to do. Every part marks its steps there.
        decided: the changes of the group that became committed since they were last told of.
    """

    __slots__ = (
        "agenda",
        "applied",
        "committed",
        "decided",
        "durable",
        "leader",
        "membership",
        "proven",
        "recalls",
        "role",
        "self_id",
        "sole_other",
        "term",
        "voted_for",
    )

    def __init__(
        self, self_id: str, membership: Membership, hard_state: HardState, durable: int
    ) -> None:
        self.agenda = Agenda()
        self.self_id = self_id
        self.membership = membership
        self.role = Role.FOLLOWER
        self.term = hard_state.term
        self.voted_for = hard_state.voted_for
        self.leader: str | None = None
        self.durable = durable
        # The changes in the log may prove a higher commit index than the record: see Membership.
        self.committed = min(max(hard_state.committed, membership.known_committed), durable)
        self.applied = -1
        self.decided: list[ChangeOutcome] = []
        membership.committed_to(self.committed)
        self.proven = True  # a member in doubt neither votes nor counts: see Admission
        self.recalls = False  # while True it takes no part in elections: see Recalling
        self.sole_other: str | None = None  # the only member that it votes for while in doubt

    @property
    def hard_state(self) -> HardState:
        """The state that must be on disk before a message rests on it."""
        return HardState(self.term, self.voted_for, self.committed)

    @property
    def votes(self) -> bool:
        """Whether this member may stand for election and counts toward a quorum."""
        return self.self_id in self.membership.voting_members

    @property
    def other_voters(self) -> list[str]:
        return sorted(self.membership.voting_members - {self.self_id})

    def change(self, event: RoleEvent) -> None:
        """Make the transition that the table names. Raises InvariantBroken if it names none."""
        role = ROLE_CHANGES.get((self.role, event))
        if role is None:
            raise InvariantBroken(f"a {self.role.value} {event.value}: not a transition")
        self.role = role
        self.agenda.due |= TELL

    def follow(self, leader: str | None) -> None:
        """Take this member for the leader of the term, or none."""
        self.leader = leader
        self.agenda.due |= TELL

    def enter_term(self, term: int, voted_for: str | None) -> None:
        """Start a higher term. Raises InvariantBroken if it is not higher."""
        if term <= self.term:
            raise InvariantBroken(f"term {term} after term {self.term}")
        self.term = term
        self.voted_for = voted_for
        self.agenda.due |= WRITE
        self.follow(None)

    def vote(self, candidate: str) -> None:
        """Give the only vote of this term. Raises InvariantBroken if it went to another member."""
        if self.voted_for not in (None, candidate):
            raise InvariantBroken(f"second vote in term {self.term}")
        self.voted_for = candidate
        self.agenda.due |= WRITE

    def commit(self, index: int) -> bool:
        """Raise the commit index; return whether it moved."""
        if index <= self.committed:
            return False
        self.committed = index
        if self.applied < self.durable:
            self.agenda.due |= APPLY
        if self.membership.uncommitted:
            self.decided += self.membership.committed_to(index)
            self.agenda.due |= WRITE | TELL
        return True

    def apply(self, index: int) -> None:
        """Raise the applied index. Raises InvariantBroken if that lowers it, or if the entry is not
        both committed and durable here.
        """
        if not self.applied <= index <= min(self.committed, self.durable):
            raise InvariantBroken(
                f"applied {index}; applied was {self.applied}, committed {self.committed}, "
                f"durable {self.durable}"
            )
        self.applied = index
