"""A member's way through roles and terms: pre-votes, votes, and what ends a leadership."""

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
    """What an elected member takes up, and gives up: see Leadership."""

    def begin(self, now: float) -> None:
        """This member was elected."""
        ...

    def end(self, now: float) -> None:
        """This member led, and leads no more."""
        ...


class Elections:
    """Asks for votes and gives them. `LeaderElector` has the rules; here they become messages."""

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
        """Another member is in a higher term: follow it there."""
        self.change_role(RoleEvent.HIGHER_TERM, now)
        self._enter_term(term, voted_for=None)

    def change_role(self, event: RoleEvent, now: float) -> None:
        """Take a transition of the table of roles. Raises InvariantBroken if it has none."""
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
        """The election timer fired: ask for pre-votes."""
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
        """The record is durable: a candidate's vote for itself counts from now on."""
        if self._state.role is Role.CANDIDATE:
            self._elector.count(self._state.self_id, granted=True)
            self._count_votes(now)

    def _ask_for_votes(self, *, pre: bool) -> None:
        request = self._elector.request(pre=pre)
        for peer in self._state.other_voters:
            if pre:
                self._outbox.send(peer, request)
            else:
                # Asked before its own vote is durable, a candidate that crashes could stand in the
                # same term again with a shorter log, and count the answers to the longer one.
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
        """A candidate asks for a vote, or whether it would get one."""
        if request.pre:
            self._outbox.send(sender, self._elector.pre_vote(sender, request, now))
            return
        spared = self._elector.follows_a_leader(now) and not request.handed_over
        if request.term > self._state.term and not spared:
            self.follow_term(request.term, now)
        self._outbox.promise(sender, self._elector.vote(sender, request, now))

    def receive_response(self, sender: str, response: VoteResponse, now: float) -> None:
        """A voter answers."""
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
        """What a voter knows to be committed is so, if it is the same entry here (log matching)."""
        known = response.committed_term
        if known == NO_TERM or self._view.term_at(response.committed) != known:
            return
        if self._state.role is Role.LEADER:
            return  # an answer to what it asked before: it counts for itself now
        before = self._state.membership.index
        self._handler.learn_committed(response.committed)
        if self._state.membership.index != before:
            self._elector.end_round()  # others decide now: ask them, next time


def is_granted_pre_vote(message: object) -> bool:
    """Whether this repeats the term that a pre-vote asked for: no member is in that term yet."""
    return isinstance(message, VoteResponse) and message.pre and message.granted
