"""One member's promises: its term, its vote, and what it does to be elected.

What rests on a promise waits in here until the promise is on disk. `Replica` adds the log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from dledger.core.entry_handler import EntryHandler
from dledger.core.hard_state import HardState
from dledger.core.leader_elector import LeaderElector
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState, Role, RoleEvent
from dledger.core.membership.membership import Membership
from dledger.core.messages import Message, VoteRequest, VoteResponse
from dledger.core.replica_config import ReplicaConfig
from dledger.core.turn_output import Outgoing, Writes
from dledger.entry import NO_TERM


class ElectingMember(ABC):
    """The part of a member's protocol that needs no entries: terms, votes and roles."""

    def __init__(
        self,
        config: ReplicaConfig,
        view: LedgerView,
        hard_state: HardState,
        membership: Membership,
        random: Callable[[], float],
        now: float,
    ) -> None:
        self.config = config
        self.view = view
        self.state = MemberState(config.self_id, membership, hard_state, view.last_index)
        self.elector = LeaderElector(self.state, view, config, random, now)
        self.handler = EntryHandler(self.state, view)
        self.handler.enter_term()
        self._promised = (hard_state.term, hard_state.voted_for)  # handed to the store
        self._durable_promise = self._promised
        self._recorded_change = self.state.membership.index  # handed to the store as committed
        self._durable_committed = self.state.committed
        self._outgoing: list[Outgoing] = []
        self._after_sync: list[Outgoing] = []

    @abstractmethod
    def _lead(self, now: float) -> None:
        """This member was elected."""

    @abstractmethod
    def _leave_office(self, now: float) -> None:
        """This member led, and does no more."""

    # --- promises -----------------------------------------------------------------------------

    @staticmethod
    def _is_granted_pre_vote(message: Message) -> bool:
        return isinstance(message, VoteResponse) and message.pre and message.granted

    def take_writes(self) -> Writes:
        """What the store must do now, before anything is proposed or sent."""
        writes = self.handler.writes
        self.handler.writes = []
        state, change = self.state, self.state.membership.index
        promise = (state.term, state.voted_for)
        hard_state = None
        if promise != self._promised or self._recorded_change < change <= state.durable:
            self._promised = promise
            self._recorded_change = max(self._recorded_change, min(change, state.durable))
            hard_state = state.hard_state
        return Writes(writes, hard_state)

    @property
    def has_outgoing(self) -> bool:
        """Whether something may leave now that was not decided on when time passed."""
        return bool(self._outgoing)

    @property
    def _promise_is_durable(self) -> bool:
        return self._durable_promise == (self.state.term, self.state.voted_for)

    @property
    def change_is_durable(self) -> bool:
        """Whether this member will know after a crash which configuration is in force.

        It has to before anybody relies on it: those who were removed may be gone by then, and
        could not help a member that takes the change for uncommitted to commit it again.
        """
        return self.state.membership.index <= self._durable_committed

    def _promise(self, peer: str, message: Message) -> None:
        """Send what rests on the term or the vote: now if they are durable, else after the sync."""
        target = self._outgoing if self._promise_is_durable else self._after_sync
        target.append(Outgoing(peer, message))

    def _follow_term(self, term: int, now: float) -> None:
        self._change_role(RoleEvent.HIGHER_TERM, now)
        self.state.enter_term(term, voted_for=None)
        self._entered_term()

    def _entered_term(self) -> None:
        self._after_sync.clear()  # promises of an older term are of no use to anybody
        self.handler.enter_term()

    def _change_role(self, event: RoleEvent, now: float) -> None:
        was_leader = self.state.role is Role.LEADER
        self.state.change(event)
        if was_leader and self.state.role is not Role.LEADER:
            self._leave_office(now)

    def leader_gone(self, leader: str, term: int, now: float) -> bool:
        """The process that led that term has ended, as far as can be seen from here; whether this
        member believes it: see LeaderElector.
        """
        return self.elector.leader_gone(leader, term, now)

    # --- standing -----------------------------------------------------------------------------

    def _campaign(self, now: float) -> None:
        self._change_role(RoleEvent.ELECTION_TIMEOUT, now)
        self.state.leader = None
        self.elector.asked(now)
        self.elector.start_round()
        self._ask_for_votes(pre=True)
        self.elector.count(self.state.self_id, granted=True)
        self._count_votes(now)

    def _stand(self, event: RoleEvent, now: float) -> None:
        self._change_role(event, now)
        self.state.enter_term(self.state.term + 1, voted_for=self.state.self_id)
        self._entered_term()
        self.elector.postpone(now)
        self.elector.start_round(handed_over=event is RoleEvent.HANDED_OVER)
        self._ask_for_votes(pre=False)

    def _ask_for_votes(self, *, pre: bool) -> None:
        request = self.elector.request(pre=pre)
        for peer in self.state.other_voters:
            if pre:
                self._outgoing.append(Outgoing(peer, request))
            else:
                # Asked before its own vote is durable, a candidate that crashes could stand in the
                # same term again with a shorter log, and count the answers to the longer one.
                self._promise(peer, request)

    def _count_own_vote(self, now: float) -> None:
        if self.state.role is Role.CANDIDATE:
            self.elector.count(self.state.self_id, granted=True)
            self._count_votes(now)

    def _count_votes(self, now: float) -> None:
        if self.state.role is Role.PRE_CANDIDATE and self.elector.won:
            self._stand(RoleEvent.PRE_VOTES_WON, now)
        elif self.state.role is Role.CANDIDATE and self.elector.won:
            self._lead(now)

    # --- voting -------------------------------------------------------------------------------

    def _receive_vote_request(self, sender: str, request: VoteRequest, now: float) -> None:
        if request.pre:
            self._outgoing.append(Outgoing(sender, self.elector.pre_vote(request, now)))
            return
        spared = self.elector.follows_a_leader(now) and not request.handed_over
        if request.term > self.state.term and not spared:
            self._follow_term(request.term, now)
        self._promise(sender, self.elector.vote(sender, request, now))

    def _receive_vote_response(self, sender: str, response: VoteResponse, now: float) -> None:
        self._learn_committed(response)
        if response.pre:
            wanted = self.state.role is Role.PRE_CANDIDATE and (
                not response.granted or response.term == self.state.term + 1
            )
        else:
            wanted = self.state.role is Role.CANDIDATE and response.term == self.state.term
        if wanted:
            self.elector.count(sender, response.granted)
            self._count_votes(now)

    def _learn_committed(self, response: VoteResponse) -> None:
        """What a voter knows to be committed is so, if it is the same entry here (log matching)."""
        known = response.committed_term
        if known == NO_TERM or self.view.term_at(response.committed) != known:
            return
        if self.state.role is Role.LEADER:
            return  # an answer to what it asked before: it counts for itself now
        before = self.state.membership.index
        self.handler.learn_committed(response.committed)
        if self.state.membership.index != before:
            self.elector.end_round()  # others decide now: ask them, next time
