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

from collections.abc import Callable

from dledger.core.entry_dispatcher import BatchSizer, EntryDispatcher
from dledger.core.entry_handler import EntryHandler, NoopEntry
from dledger.core.freshness import Freshness
from dledger.core.handover import Handover
from dledger.core.hard_state import HardState
from dledger.core.leader_elector import LeaderElector
from dledger.core.leader_lease import LeaderLease
from dledger.core.leader_transfer import LeaderTransfer
from dledger.core.ledger_view import LedgerView
from dledger.core.member_reads import MemberReads
from dledger.core.member_state import MemberState, Role, RoleEvent
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.read_index import ReadIndex
from dledger.core.replica_config import ReplicaConfig
from dledger.core.turn_output import Messages, Outgoing, Writes
from dledger.errors import InvariantBroken, LeadershipMoving, NotLeader
from dledger.messages import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    PushRequest,
    PushResponse,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

__all__ = ["Messages", "Outgoing", "Replica", "ReplicaConfig", "Writes"]


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
        self.elector = LeaderElector(self.state, view, config, random, now)
        self.handler = EntryHandler(self.state, view)
        self.handler.enter_term()
        self.dispatchers: dict[str, EntryDispatcher] = {}
        self.acks: QuorumAckChecker | None = None
        self.handover = Handover(config, self.state, view)
        self._reads = MemberReads(config, random)
        self.freshness = Freshness(view)
        self._batches = batches
        self.heartbeat_at = now
        self._promised = (hard_state.term, hard_state.voted_for)  # handed to the store
        self._durable_promise = self._promised
        self._outgoing: list[Outgoing] = []
        self._after_sync: list[Outgoing] = []

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
        if isinstance(message, PushRequest | Heartbeat | TimeoutNow):
            self._receive_from_leader(sender, message, now)
        elif isinstance(message, VoteResponse):
            self._receive_vote_response(sender, message, now)
        elif isinstance(message, ReadResponse):
            self._reads.answered(message, self.state.applied)
        elif message.term == self.state.term and self.state.role is Role.LEADER:
            self._receive_as_leader(sender, message, now)

    def tick(self, now: float) -> None:
        """Let time pass: elections, heartbeats, the check that a quorum still answers."""
        self.handover.observe(now)
        self._reads.expire(now)
        if self.state.role is Role.LEADER:
            self._tick_leader(now)
        elif now >= self.elector.deadline:
            if self.handover.disk_stalled(now):
                self.elector.postpone(now)  # it could keep neither a vote nor an entry
            else:
                self._campaign(now)

    def propose(self, count: int) -> tuple[int, int]:
        """Make room for `count` new entries; their first index and their term.

        Raises NotLeader or LeadershipMoving. The caller appends exactly these to its store in the
        same turn.
        """
        self.check_proposable()
        if self.handler.writes:
            raise InvariantBroken("writes must be taken before entries are proposed")
        return self.view.extend(self.state.term, count), self.state.term

    def check_proposable(self) -> None:
        """Raise NotLeader or LeadershipMoving unless this member takes proposals now."""
        if self.state.role is not Role.LEADER:
            raise NotLeader(self.state.leader, self.state.term)
        if self.handover.transfer is not None:
            raise LeadershipMoving(self.handover.transfer.target, self.state.term)

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
        """Begin a linearizable read, on any member. The outcome comes with `take_messages`."""
        self._reads.request(ticket, self._committed_for_reads)

    def transfer_leadership(self, target: str | None, now: float) -> LeaderTransfer | None:
        """Begin to hand leadership over: see Handover. Raises NotLeader or TransferFailed."""
        return self.handover.begin(target, self.dispatchers, now)

    def forget_leader(self) -> None:
        """Take the leader for lost: see LeaderElector. Raises LeaderKept."""
        self.elector.forget_leader()

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
        reads, state = self._reads, self.state
        if reads.needs_round(state.applied, now):
            self._broadcast_heartbeat(now)
        question = reads.question(state.leader, state.term, now)
        if state.leader is not None and question is not None:
            self._promise(state.leader, question)
        self._outgoing.extend(Outgoing(*a) for a in reads.answers(state.term, state.applied))
        for peer, dispatcher in self.dispatchers.items():
            for push in dispatcher.pump(state.committed, now):
                self._outgoing.append(Outgoing(peer, push))
        if (successor := self.handover.tell(self.dispatchers, now)) is not None:
            self._send_timeout_now(successor)
        outgoing, self._outgoing = self._outgoing, []
        return Messages(outgoing, *reads.take_outcomes())

    def next_deadline(self) -> float:
        """When `tick` must be called at the latest."""
        if self.state.role is not Role.LEADER:
            return min(self.elector.deadline, self._reads.next_deadline)
        deadlines = [self.heartbeat_at, self._reads.next_deadline]
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

    @property
    def reads(self) -> ReadIndex | None:
        """A leader's open reads."""
        return self._reads.index

    @property
    def lease(self) -> LeaderLease | None:
        """A leader's lease, where lease reads are on."""
        return self._reads.lease

    @property
    def fresh_as_of(self) -> float:
        """The applied state includes all that was committed then: see Freshness."""
        return self.freshness.as_of(self.state.applied)

    @property
    def _committed_for_reads(self) -> int | None:
        return self.state.committed if self.commits_in_own_term else None

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
        self._reads.leave_office()
        self.handover.give_up("the leader stepped down")
        self.state.leader = None
        self.dispatchers.clear()
        self.acks = None
        self.elector.postpone(now)

    def _campaign(self, now: float) -> None:
        self._change_role(RoleEvent.ELECTION_TIMEOUT, now)
        self.state.leader = None
        self.elector.postpone(now)
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
            self._stand(RoleEvent.PRE_VOTES_WON, now)
        elif self.state.role is Role.CANDIDATE and self.elector.won:
            self._lead(now)

    def _lead(self, now: float) -> None:
        state = self.state
        state.change(RoleEvent.VOTES_WON)
        state.leader = state.self_id
        index = self.view.extend(state.term, 1)
        self.handler.writes.append(NoopEntry(index, state.term))
        self.acks = QuorumAckChecker(state.voters, state.quorum, state.term)
        self._reads.lead(state)
        self.dispatchers = {
            peer: EntryDispatcher(peer, state.term, self.view, self._batches, now)
            for peer in state.others
        }
        self._broadcast_heartbeat(now)

    def _receive_vote_request(self, sender: str, request: VoteRequest, now: float) -> None:
        if request.pre:
            self._outgoing.append(Outgoing(sender, self.elector.pre_vote(request, now)))
            return
        spared = self.elector.follows_a_leader(now) and not request.handed_over
        if request.term > self.state.term and not spared:
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
        self, sender: str, message: PushRequest | Heartbeat | TimeoutNow, now: float
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
        if isinstance(message, TimeoutNow):
            if state.self_id in state.voters:
                self._stand(RoleEvent.HANDED_OVER, now)
            return
        self.elector.heard_leader(now)
        if isinstance(message, Heartbeat):
            self.handler.commit(message.committed)
            self.freshness.heard(message.committed, state.term, state.applied, now)
            promised_ms = self.elector.promised_ms
            self._promise(sender, HeartbeatResponse(state.term, message.round, promised_ms))
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
        self, sender: str, message: PushResponse | HeartbeatResponse | ReadRequest, now: float
    ) -> None:
        if isinstance(message, ReadRequest):
            self._reads.request_of(sender, message, self._committed_for_reads)
            return
        dispatcher = self.dispatchers[sender]
        if isinstance(message, HeartbeatResponse):
            dispatcher.last_answer_at = now
            self._reads.confirm(sender, message)
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
        heard_at = self.elector.quorum_heard_at(answers, now)
        if now - heard_at >= self.config.election_timeout_s:
            self._change_role(RoleEvent.QUORUM_LOST, now)
            return
        if self.handover.disk_stalled(now) and self.dispatchers:
            # Nothing becomes durable here any more: let the best of the others lead at once.
            if (successor := self.handover.successor(self.dispatchers, now)) is not None:
                self._send_timeout_now(successor)
            self._change_role(RoleEvent.DISK_STALLED, now)
            return
        self.handover.tick(self.dispatchers, self.commits_in_own_term, now)
        if now >= self.heartbeat_at:
            state = self.state
            self.freshness.heard(state.committed, state.term, state.applied, heard_at)
            self._broadcast_heartbeat(now)

    def _broadcast_heartbeat(self, now: float) -> None:
        self.heartbeat_at = self.config.next_heartbeat_at(now)
        beat = Heartbeat(self.state.term, self.state.committed, self._reads.next_round(now))
        self._outgoing.extend(Outgoing(peer, beat) for peer in self.state.others)

    def _send_timeout_now(self, target: str) -> None:
        # From now on votes for the target are free, whenever the message arrives.
        if self.lease is not None:
            self.lease.end()
        self._outgoing.append(Outgoing(target, TimeoutNow(self.state.term)))
