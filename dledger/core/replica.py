"""One member of a group, as a pure state machine: messages and time in, effects out.

A driver works in turns, always in this order:

1. give everything that arrived to `receive`, `persisted`, `applied_to`, and call `tick`;
2. `take_writes` and carry them out on the store, in order;
3. if this member leads, `propose` what the application handed in, and append it to the store;
4. `take_messages` and send them; a sync that is due may begin before or after.

What may leave when: a question (a pre-vote, a push) may leave at once. Whatever rests on a promise
(a vote, the request for votes in a term of one's own, an acknowledgement) waits in here until
`persisted` says that the promise is on disk. So a driver cannot send it too early. The member's own
vote and its own acknowledgement count by the same rule, as in etcd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dledger.core.entry_dispatcher import BatchSizer, EntryDispatcher
from dledger.core.entry_handler import EntryHandler, NoopEntry, Write
from dledger.core.hard_state import HardState
from dledger.core.leader_elector import LeaderElector
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState, Role, RoleEvent
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.read_index import ReadIndex, ReadReady
from dledger.errors import InvariantBroken, NotLeader
from dledger.messages import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    PushRequest,
    PushResponse,
    VoteRequest,
    VoteResponse,
)


class ReplicaConfig(NamedTuple):
    """What a member must know. Times in seconds; an election waits one to two timeouts."""

    self_id: str
    voters: Sequence[str]
    election_timeout_s: float = 0.5
    heartbeat_interval_s: float = 0.1


class Writes(NamedTuple):
    """What the store must do, in order; `hard_state` is set when the record must be rewritten."""

    writes: Sequence[Write]
    hard_state: HardState | None


class Outgoing(NamedTuple):
    """A message and the member it goes to."""

    peer: str
    message: Message


class Messages(NamedTuple):
    """What leaves this turn, and what became of the open reads."""

    outgoing: Sequence[Outgoing]
    reads_ready: Sequence[ReadReady]
    reads_lost: Sequence[int]


class Replica:
    """The protocol of one member. Holds indexes, terms and ranges; never a body, never a clock."""

    def __init__(
        self,
        config: ReplicaConfig,
        view: LedgerView,
        hard_state: HardState,
        batches: BatchSizer,
        random: Callable[[], float],
        now: float,
    ) -> None:
        if config.self_id not in config.voters:
            raise InvariantBroken(f"{config.self_id} is not one of {sorted(config.voters)}")
        self.config = config
        self.view = view
        self.state = MemberState(config.self_id, config.voters, hard_state, view.last_index)
        self.elector = LeaderElector(self.state, view, config.election_timeout_s, random, now)
        self.handler = EntryHandler(self.state, view)
        self.handler.enter_term()
        self.dispatchers: dict[str, EntryDispatcher] = {}
        self.acks: QuorumAckChecker | None = None
        self.reads: ReadIndex | None = None
        self._batches = batches
        self._heartbeat_at = now
        self._promised = (hard_state.term, hard_state.voted_for)  # handed to the store
        self._durable_promise = self._promised
        self._outgoing: list[Outgoing] = []
        self._after_sync: list[Outgoing] = []
        self._reads_lost: list[int] = []

    # --- inputs -------------------------------------------------------------------------------

    def receive(self, sender: str, message: Message, now: float) -> None:
        """Take one message of a member of the group; others are ignored."""
        if sender not in self.state.voters or sender == self.state.self_id:
            return
        if isinstance(message, VoteRequest):
            self._receive_vote_request(sender, message, now)
            return
        if message.term > self.state.term and not self._is_granted_pre_vote(message):
            self._follow_term(message.term, now)
        if isinstance(message, PushRequest | Heartbeat):
            self._receive_from_leader(sender, message, now)
        elif isinstance(message, VoteResponse):
            self._receive_vote_response(sender, message, now)
        elif message.term == self.state.term and self.state.role is Role.LEADER:
            self._receive_as_leader(sender, message, now)

    def tick(self, now: float) -> None:
        """Let time pass: elections, heartbeats, the check that a quorum still answers."""
        if self.state.role is Role.LEADER:
            self._tick_leader(now)
        elif now >= self.elector.deadline:
            self._campaign(now)

    def propose(self, count: int) -> tuple[int, int]:
        """Make room for `count` new entries; their first index and their term.

        Raises NotLeader. The caller appends exactly these to its store in the same turn.
        """
        state = self.state
        if state.role is not Role.LEADER:
            raise NotLeader(state.leader, state.term)
        if self.handler.writes:
            raise InvariantBroken("writes must be taken before entries are proposed")
        return self.view.extend(state.term, count), state.term

    def persisted(self, index: int, epoch: int, promise: HardState | None, now: float) -> None:
        """A sync ended: the log is durable up to `index` as of truncation `epoch`, and so is the
        record, where one was written.
        """
        if promise is not None:
            self._durable_promise = (promise.term, promise.voted_for)
        if epoch == self.handler.epoch:
            self.state.durable = max(self.state.durable, min(index, self.view.last_index))
        if self._promise_is_durable:
            self._outgoing.extend(self._after_sync)
            self._after_sync.clear()
            self._count_own_vote(now)
        if self.state.role is Role.LEADER:
            self._acknowledge(self.state.self_id, self.state.durable)
        else:
            self._acknowledge_to_leader()

    def applied_to(self, index: int) -> None:
        """The state machine has everything up to `index`."""
        self.state.apply(index)

    def request_read(self, ticket: int) -> None:
        """Begin a linearizable read. Raises NotLeader. The outcome comes with `take_messages`."""
        if self.reads is None:
            raise NotLeader(self.state.leader, self.state.term)
        if self.commits_in_own_term:
            self.reads.add(ticket, self.state.committed)
        else:
            self.reads.hold(ticket)

    def unreachable(self, peer: str, now: float) -> None:
        """The connection to `peer` broke; what was on its way may be lost."""
        if (dispatcher := self.dispatchers.get(peer)) is not None:
            dispatcher.lost(now)

    def reachable(self, peer: str, now: float) -> None:
        """There is a connection to `peer` again."""
        if (dispatcher := self.dispatchers.get(peer)) is not None:
            dispatcher.reachable(now)

    # --- outputs ------------------------------------------------------------------------------

    def take_writes(self) -> Writes:
        """What the store must do now, before anything is proposed or sent."""
        writes = self.handler.writes
        self.handler.writes = []
        promise = (self.state.term, self.state.voted_for)
        hard_state = None
        if promise != self._promised:
            self._promised = promise
            hard_state = self.state.hard_state
        return Writes(writes, hard_state)

    def take_messages(self, now: float) -> Messages:
        """What leaves now. On a leader this also fills every peer's window."""
        ready: list[ReadReady] = []
        if self.state.role is Role.LEADER and self.reads is not None:
            if self.reads.needs_round:
                self._broadcast_heartbeat(now)
            ready = self.reads.take_ready()
            for peer, dispatcher in self.dispatchers.items():
                for push in dispatcher.pump(self.state.committed, now):
                    self._outgoing.append(Outgoing(peer, push))
        outgoing, self._outgoing = self._outgoing, []
        lost, self._reads_lost = self._reads_lost, []
        return Messages(outgoing, ready, lost)

    def next_deadline(self) -> float:
        """When `tick` must be called at the latest."""
        if self.state.role is not Role.LEADER:
            return self.elector.deadline
        deadlines = [self._heartbeat_at]
        deadlines += (d.next_deadline(self.state.committed) for d in self.dispatchers.values())
        return min(deadlines)

    @property
    def appliable(self) -> int:
        """How far entries may be applied here."""
        return min(self.state.committed, self.state.durable)

    @property
    def commits_in_own_term(self) -> bool:
        """Whether this leader has committed an entry of its own term (then its commit index is
        as far as any predecessor's ever was).
        """
        return self.view.term_at(self.state.committed) == self.state.term

    # --- elections ----------------------------------------------------------------------------

    @staticmethod
    def _is_granted_pre_vote(message: Message) -> bool:
        return isinstance(message, VoteResponse) and message.pre and message.granted

    @property
    def _promise_is_durable(self) -> bool:
        return self._durable_promise == (self.state.term, self.state.voted_for)

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

    def _leave_office(self, now: float) -> None:
        if self.reads is not None:
            self._reads_lost += self.reads.take_all()
        self.state.leader = None
        self.dispatchers.clear()
        self.acks = None
        self.reads = None
        self.elector.postpone(now)

    def _campaign(self, now: float) -> None:
        self._change_role(RoleEvent.ELECTION_TIMEOUT, now)
        self.state.leader = None
        self.elector.postpone(now)
        self.elector.start_round()
        self._ask_for_votes(pre=True)
        self.elector.count(self.state.self_id, granted=True)
        self._count_votes(now)

    def _stand(self, now: float) -> None:
        self._change_role(RoleEvent.PRE_VOTES_WON, now)
        self.state.enter_term(self.state.term + 1, voted_for=self.state.self_id)
        self._entered_term()
        self.elector.postpone(now)
        self.elector.start_round()
        self._ask_for_votes(pre=False)

    def _ask_for_votes(self, *, pre: bool) -> None:
        request = self.elector.request(pre=pre)
        for peer in self.state.others:
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
            self._stand(now)
        elif self.state.role is Role.CANDIDATE and self.elector.won:
            self._lead(now)

    def _lead(self, now: float) -> None:
        state = self.state
        state.change(RoleEvent.VOTES_WON)
        state.leader = state.self_id
        index = self.view.extend(state.term, 1)
        self.handler.writes.append(NoopEntry(index, state.term))
        self.acks = QuorumAckChecker(state.voters, state.quorum, state.term)
        self.reads = ReadIndex(state.self_id, state.voters, state.quorum)
        self.dispatchers = {
            peer: EntryDispatcher(peer, state.term, self.view, self._batches, now)
            for peer in state.others
        }
        self._broadcast_heartbeat(now)

    def _receive_vote_request(self, sender: str, request: VoteRequest, now: float) -> None:
        if request.pre:
            self._outgoing.append(Outgoing(sender, self.elector.pre_vote(request, now)))
            return
        if request.term > self.state.term and not self.elector.follows_a_leader(now):
            self._follow_term(request.term, now)
        self._promise(sender, self.elector.vote(sender, request, now))

    def _receive_vote_response(self, sender: str, response: VoteResponse, now: float) -> None:
        if response.pre:
            wanted = self.state.role is Role.PRE_CANDIDATE and (
                not response.granted or response.term == self.state.term + 1
            )
        else:
            wanted = self.state.role is Role.CANDIDATE and response.term == self.state.term
        if wanted:
            self.elector.count(sender, response.granted)
            self._count_votes(now)

    # --- following ----------------------------------------------------------------------------

    def _receive_from_leader(
        self, sender: str, message: PushRequest | Heartbeat, now: float
    ) -> None:
        state = self.state
        if message.term < state.term:
            # A deposed leader, or one that our higher term keeps out: let it know.
            self._promise(sender, HeartbeatResponse(state.term, 0))
            return
        if state.role is Role.LEADER:
            raise InvariantBroken(f"{sender} leads term {state.term} as well as {state.self_id}")
        if state.leader is None:
            self._change_role(RoleEvent.LEADER_SEEN, now)
            state.leader = sender
        elif state.leader != sender:
            raise InvariantBroken(f"{sender} and {state.leader} both lead term {state.term}")
        self.elector.heard_leader(now)
        if isinstance(message, Heartbeat):
            self.handler.commit(message.committed)
            self._promise(sender, HeartbeatResponse(state.term, message.round))
            return
        answer = self.handler.handle(message)
        if answer is not None:
            self._promise(sender, answer)

    def _acknowledge_to_leader(self) -> None:
        if self.state.leader is None:
            return
        answer = self.handler.acknowledgement()
        if answer is not None:
            self._promise(self.state.leader, answer)

    # --- leading ------------------------------------------------------------------------------

    def _receive_as_leader(
        self, sender: str, message: PushResponse | HeartbeatResponse, now: float
    ) -> None:
        dispatcher = self.dispatchers[sender]
        if isinstance(message, HeartbeatResponse):
            dispatcher.last_answer_at = now
            if self.reads is not None:
                self.reads.confirm(sender, message.round)
            return
        dispatcher.receive(message, now)
        self._acknowledge(sender, message.match)

    def _acknowledge(self, voter: str, index: int) -> None:
        if self.acks is None or not self.acks.acknowledge(voter, index):
            return
        committed = self.acks.committed(self.view)
        if committed is None or not self.state.commit(committed):
            return
        if self.reads is not None:
            self.reads.release_held(self.state.committed)

    def _tick_leader(self, now: float) -> None:
        answers = [dispatcher.last_answer_at for dispatcher in self.dispatchers.values()]
        if now - self.elector.quorum_heard_at(answers, now) >= self.config.election_timeout_s:
            self._change_role(RoleEvent.QUORUM_LOST, now)
            return
        if now >= self._heartbeat_at:
            self._broadcast_heartbeat(now)

    def _broadcast_heartbeat(self, now: float) -> None:
        if self.reads is None:
            raise InvariantBroken("only a leader sends heartbeats")
        self._heartbeat_at = now + self.config.heartbeat_interval_s
        beat = Heartbeat(self.state.term, self.state.committed, self.reads.next_round())
        self._outgoing.extend(Outgoing(peer, beat) for peer in self.state.others)
