"""A member's changes of role and term: pre-votes, votes, and the end of a leadership."""

from __future__ import annotations

from typing import Protocol

from dledger.core.entry_handler import EntryHandler
from dledger.core.leader_elector import LeaderElector
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState, Role, RoleEvent
from dledger.core.messages import VoteRequest, VoteResponse
from dledger.core.outbox import Outbox
from dledger.entry import NO_TERM


class Office(Protocol):
    """The work of an elected member: see Leadership."""

    def begin(self, now: float) -> None:
        """Begin to lead: this member was elected."""
        ...

    def end(self, now: float) -> None:
        """Stop leading."""
        ...


class Elections:
    """Asks for votes and gives them. `LeaderElector` has the rules; this class has the messages."""

    __slots__ = ("_elector", "_handler", "_office", "_outbox", "_state", "_view")

    def __init__(
        self,
        state: MemberState,
        view: LedgerView,
        elector: LeaderElector,
        handler: EntryHandler,
        outbox: Outbox,
        office: Office,
    ) -> None:
        self._state = state
        self._view = view
        self._elector = elector
        self._handler = handler
        self._outbox = outbox
        self._office = office

    def follow_term(self, term: int, now: float) -> None:
        """Enter a higher term that another member is in."""
        self.change_role(RoleEvent.HIGHER_TERM, now)
        self._enter_term(term, voted_for=None)

    def change_role(self, event: RoleEvent, now: float) -> None:
        """Make the transition that ROLE_CHANGES names. Raises InvariantBroken if it names none."""
        was_leader = self._state.role is Role.LEADER
        self._state.change(event)
        if was_leader and self._state.role is not Role.LEADER:
            self._office.end(now)

    def _enter_term(self, term: int, voted_for: str | None) -> None:
        self._state.enter_term(term, voted_for=voted_for)
        self._outbox.forget_promises()
        self._handler.enter_term()

    # --- standing -----------------------------------------------------------------------------

    def campaign(self, now: float) -> None:
        """Ask for pre-votes, because the election timer fired."""
        self.change_role(RoleEvent.ELECTION_TIMEOUT, now)
        self._state.leader = None
        self._elector.asked(now)
        self._elector.start_round()
        self._ask_for_votes(pre=True)
        self._elector.count(self._state.self_id, granted=True)
        self._count_votes(now)

    def stand(self, event: RoleEvent, now: float) -> None:
        """Ask for votes in a new term, with this member's own vote."""
        self.change_role(event, now)
        self._enter_term(self._state.term + 1, voted_for=self._state.self_id)
        self._elector.postpone(now)
        self._elector.start_round(handed_over=event is RoleEvent.HANDED_OVER)
        self._ask_for_votes(pre=False)

    def count_own_vote(self, now: float) -> None:
        """Count a candidate's vote for itself, which is durable now."""
        if self._state.role is Role.CANDIDATE:
            self._elector.count(self._state.self_id, granted=True)
            self._count_votes(now)

    def _ask_for_votes(self, *, pre: bool) -> None:
        request = self._elector.request(pre=pre)
        for peer in self._state.other_voters:
            if pre:
                self._outbox.send(peer, request)
            else:
                # The request waits until the candidate's own vote is durable. Otherwise a candidate
                # that crashes could stand in the same term again with a shorter log, and count the
                # answers that were given to the longer one.
                self._outbox.promise(peer, request)

    def _count_votes(self, now: float) -> None:
        if self._state.role is Role.PRE_CANDIDATE and self._elector.won:
            self.stand(RoleEvent.PRE_VOTES_WON, now)
        elif self._state.role is Role.CANDIDATE and self._elector.won:
            self._state.change(RoleEvent.VOTES_WON)
            self._state.leader = self._state.self_id
            self._office.begin(now)

    # --- voting -------------------------------------------------------------------------------

    def receive_request(self, sender: str, request: VoteRequest, now: float) -> None:
        """Answer a candidate's request for a vote or a pre-vote."""
        if request.pre:
            self._outbox.send(sender, self._elector.pre_vote(sender, request, now))
            return
        spared = self._elector.follows_a_leader(now) and not request.handed_over
        if request.term > self._state.term and not spared:
            self.follow_term(request.term, now)
        self._outbox.promise(sender, self._elector.vote(sender, request, now))

    def receive_response(self, sender: str, response: VoteResponse, now: float) -> None:
        """Count a voter's answer."""
        self._learn_committed(response)
        if response.pre:
            wanted = self._state.role is Role.PRE_CANDIDATE and (
                not response.granted or response.term == self._state.term + 1
            )
        else:
            wanted = self._state.role is Role.CANDIDATE and response.term == self._state.term
        if wanted:
            self._elector.count(sender, response.granted)
            self._count_votes(now)

    def _learn_committed(self, response: VoteResponse) -> None:
        """Commit what a voter knows to be committed, if this log has that entry (log matching)."""
        known = response.committed_term
        if known == NO_TERM or self._view.term_at(response.committed) != known:
            return
        if self._state.role is Role.LEADER:
            return  # a late answer: a leader commits by counting acknowledgements
        before = self._state.membership.index
        self._handler.learn_committed(response.committed)
        if self._state.membership.index != before:
            self._elector.end_round()  # other voters decide now: the next round asks them


def is_granted_pre_vote(message: object) -> bool:
    """Whether the message is a granted pre-vote. It carries the requested term, which no member
    has entered yet.
    """
    return isinstance(message, VoteResponse) and message.pre and message.granted
