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

from dledger.core.admission.standing import Standing
from dledger.core.entry_dispatcher import BatchSizer
from dledger.core.entry_handler import ConfigurationEntry, NoopEntry
from dledger.core.followers import Followers
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import Role, RoleEvent
from dledger.core.membership.change_errors import ConfigurationInvalid
from dledger.core.membership.configuration_change import Change, Transition
from dledger.core.membership.configuration_codec import NumberedConfiguration, encode_configuration
from dledger.core.membership.membership import Membership
from dledger.core.messages import (
    Answer,
    FromLeader,
    Heartbeat,
    HeartbeatResponse,
    Inquiry,
    InquiryAnswer,
    InstallSnapshotResponse,
    Message,
    Phase,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    ToLeader,
    VoteRequest,
    VoteResponse,
)
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.reading_member import NO_OUTCOMES, ReadingMember
from dledger.core.reads.member_reads import MemberReads
from dledger.core.reads.read_index import ReadIndex
from dledger.core.replica_config import ReplicaConfig
from dledger.core.snapshot.snapshot_offer import NO_SNAPSHOTS, SnapshotSource
from dledger.core.transfer.handover import Handover
from dledger.core.transfer.leader_transfer import LeaderTransfer
from dledger.core.turn_output import Messages, Outgoing, Writes
from dledger.errors import InvariantBroken, LeadershipMoving, NotLeader

__all__ = ["Messages", "Outgoing", "Replica", "ReplicaConfig", "Writes"]


NEVER = float("-inf")


class Replica(ReadingMember):
    """The protocol of one member. Holds indexes, terms and ranges; never a body, never a clock.

    `membership` is what the log and a snapshot say about the group; without it the log says
    nothing, and the group is what it began with.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        view: LedgerView,
        hard_state: HardState,
        batches: BatchSizer,
        random: Callable[[], float],
        now: float,
        membership: Membership | None = None,
        snapshots: SnapshotSource = NO_SNAPSHOTS,
        standing: Standing = Standing.PROVEN,
    ) -> None:
        membership = membership or Membership(config.began_with)
        super().__init__(config, view, hard_state, membership, random, now, standing)
        self.followers = Followers(self.state, view, batches, config.election_timeout_s, snapshots)
        self.dispatchers = self.followers.dispatchers
        self.acks: QuorumAckChecker | None = None
        self.handover = Handover(config, self.state, view)
        self._reads = MemberReads(config, random)
        self.heartbeat_at = now
        self._configuration = membership.index  # what a leader goes by
        self._heard_at = NEVER  # when a leader was last heard by a quorum, as of the last look

    # --- inputs -------------------------------------------------------------------------------

    def receive(self, sender: str, message: Message, now: float) -> None:
        """Take one message: a request of anybody (for whoever asks may know of a newer
        configuration than this member does), an answer of a member.
        """
        if sender == self.state.self_id:
            return
        if (
            sender not in self.state.membership.members
            and isinstance(message, Answer)
            # Who was removed may still show that it learns so, and no more.
            and (message.term != self.state.term or sender not in self.dispatchers)
        ):
            return
        if isinstance(message, VoteRequest):
            self._receive_vote_request(sender, message, now)
            return
        if isinstance(message, Inquiry):
            self._receive_inquiry(sender, message, now)
            return
        if message.term > self.state.term and not self._is_granted_pre_vote(message):
            self._follow_term(message.term, now)
        if isinstance(message, FromLeader):
            self._receive_from_leader(sender, message, now)
        elif isinstance(message, VoteResponse):
            self._receive_vote_response(sender, message, now)
        elif isinstance(message, ReadResponse):
            self._reads.answered(message, self.state.applied)
        elif isinstance(message, InquiryAnswer):
            self.admission.answered(sender, message)
        elif message.term == self.state.term and self.state.role is Role.LEADER:
            self._receive_as_leader(sender, message, now)

    def tick(self, now: float) -> None:
        """Let time pass: elections, heartbeats, the check that a quorum still answers."""
        self.handover.observe(now)
        if self._reads.busy:
            self._reads.expire(now)
        was_proven = self.state.proven
        self.admission.tick(self._durable_promise, now)
        if self.state.proven and not was_proven and self.elector.is_alone:
            self.elector.stand_alone(now)
        if self.state.role is Role.LEADER:
            self._tick_leader(now)
        elif now >= self.elector.deadline:
            if not (self.state.votes and self.state.proven) or self.handover.disk_stalled(now):
                # It may not lead, or it could keep neither a vote nor an entry.
                self.elector.postpone(now)
            elif not self.elector.gives_way(now):
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

    def propose_change(
        self,
        changes: Sequence[Change],
        transition: Transition = Transition.AUTO,
        expected: int | None = None,
    ) -> int:
        """Append a change of the group; its index. What became of it comes with `take_messages`.

        `expected`: as in Membership. Raises NotLeader, LeadershipMoving or one of ChangeRefused.
        """
        self.check_proposable()
        membership = self.state.membership
        committed = self.state.committed
        entry = membership.propose(changes, committed, transition=transition, expected=expected)
        size = len(encode_configuration(*entry))
        if size > self.config.max_change_bytes:
            problem = f"{size} bytes, and a segment has room for {self.config.max_change_bytes}"
            raise ConfigurationInvalid(problem)
        self.followers.check_change(entry.configuration)
        return self._append_change(entry)

    def propose_leave(self) -> int:
        """Append the end of a joint phase; its index. Raises as `propose_change`."""
        self.check_proposable()
        return self._append_change(self.state.membership.propose_leave(self.state.committed))

    def persisted(self, index: int, epoch: int, promise: HardState | None, now: float) -> None:
        """A sync ended: the log is durable up to `index` as of truncation `epoch`, and so is the
        record, where one was written.
        """
        if promise is not None:
            self._durable_promise = (promise.term, promise.voted_for)
            # The record says no more than what was durable of the log.
            self._durable_committed = max(self._durable_committed, min(promise.committed, index))
        if epoch == self.handler.epoch:
            self.state.durable = max(self.state.durable, min(index, self.view.last_index))
        if self._promise_is_durable:
            self._outgoing.extend(self._after_sync)
            self._after_sync.clear()
            self._count_own_vote(now)
        self._confirm_when_durable()
        if self.state.role is Role.LEADER:
            self._acknowledge(self.state.self_id, self.state.durable, now)
        else:
            self._acknowledge_to_leader()

    def applied_to(self, index: int) -> None:
        """The state machine has everything up to `index`."""
        self.state.apply(index)

    def transfer_leadership(self, target: str | None, now: float) -> LeaderTransfer | None:
        """Begin to hand leadership over: see Handover. Raises NotLeader or TransferFailed."""
        return self.handover.begin(target, self.followers.voters, now)

    def forget_leader(self) -> None:
        """Take the leader for lost: see LeaderElector. Raises LeaderKept."""
        self.elector.forget_leader()

    def unreachable(self, peer: str, now: float) -> None:
        """The connection to `peer` broke; what was on its way may be lost."""
        if (dispatcher := self.dispatchers.get(peer)) is not None:
            dispatcher.lost(now)

    def reachable(self, peer: str, now: float) -> None:
        """There is a connection to `peer` again."""
        self.admission.reachable(now)
        if (dispatcher := self.dispatchers.get(peer)) is not None:
            dispatcher.reachable(now)

    # --- outputs ------------------------------------------------------------------------------

    def take_messages(self, now: float) -> Messages:
        """What leaves now. On a leader this also fills every peer's window."""
        reads, state = self._reads, self.state
        if reads.busy:
            self._pursue_reads(now)
        if state.leader is not None:
            for answer in self.receiver.take_answers():
                self._promise(state.leader, answer)
        for peer, dispatcher in self.dispatchers.items():
            for push in dispatcher.pump(state.committed, now):
                self._outgoing.append(Outgoing(peer, push))
            if dispatcher.phase is Phase.INSTALL_SNAPSHOT:
                for piece in dispatcher.pump_snapshot(now):
                    self._outgoing.append(Outgoing(peer, piece))
        if (successor := self.handover.tell(self.followers.voters, now)) is not None:
            self._send_timeout_now(successor)
        self._ask_what_was_forgotten(now)
        outgoing, self._outgoing = self._outgoing, []
        outcomes = reads.take_outcomes() if reads.busy else NO_OUTCOMES
        if not state.decided:
            return Messages(outgoing, *outcomes)
        decided, state.decided = state.decided, []
        return Messages(outgoing, *outcomes, decided)

    def next_deadline(self) -> float:
        """When `tick` must be called at the latest."""
        if self.state.role is not Role.LEADER:
            waits = (self.elector.deadline, self._reads.next_deadline)
            return min(*waits, self.admission.next_deadline)
        committed = self.state.committed
        deadline = min(self.heartbeat_at, self._reads.next_deadline)
        for dispatcher in self.dispatchers.values():
            deadline = min(deadline, dispatcher.next_deadline(committed))
        return deadline

    @property
    def appliable(self) -> int:
        """How far entries may be applied here."""
        return min(self.state.committed, self.state.durable)

    # --- office -------------------------------------------------------------------------------

    def _lead(self, now: float) -> None:
        state = self.state
        state.change(RoleEvent.VOTES_WON)
        state.leader = state.self_id
        index = self.view.extend(state.term, 1)
        self.handler.writes.append(NoopEntry(index, state.term))
        state.membership.elected(index)
        self._configuration = state.membership.index
        self._heard_at = NEVER
        self.acks = QuorumAckChecker(state.membership.quorum, state.term)
        self._reads.lead(state)
        self.followers.follow(now)
        self._broadcast_heartbeat(now)

    def _leave_office(self, now: float) -> None:
        self._reads.leave_office()
        self.admission.leave_office()
        self.handover.give_up("the leader stepped down")
        self.state.leader = None
        self.followers.clear()
        self.acks = None
        self.elector.postpone(now)

    # --- leading ------------------------------------------------------------------------------

    def _receive_as_leader(self, sender: str, message: ToLeader, now: float) -> None:
        if (dispatcher := self.dispatchers.get(sender)) is None:
            return  # it is no member yet, or no more
        if isinstance(message, ReadRequest):
            self._reads.request_of(sender, message, self._committed_for_reads)
            return
        if isinstance(message, HeartbeatResponse):
            dispatcher.last_answer_at = now
            if message.round > 0:
                dispatcher.proven = True  # it confirms nothing while it is in doubt
            self._reads.confirm(sender, message)
            if self.reads is not None:
                self._leave_if_removed(self.reads, now)
            return
        if isinstance(message, InstallSnapshotResponse):
            dispatcher.receive_install(message, now)
            return
        dispatcher.receive(message, now)
        if message.proven:
            self._acknowledge(sender, message.match, now)
        self._remind(dispatcher)

    def _acknowledge(self, member: str, index: int, now: float) -> None:
        if self.acks is not None and self.acks.acknowledge(member, index):
            self._advance_commit(self.acks, now)

    def _advance_commit(self, acks: QuorumAckChecker, now: float) -> None:
        committed = acks.committed(self.view)
        if committed is None or not self.state.commit(committed):
            return
        if self.reads is not None:
            self.reads.release_held(self.state.committed)
        if self.state.membership.index != self._configuration:
            self._configuration_changed(acks, now)

    def _configuration_changed(self, acks: QuorumAckChecker, now: float) -> None:
        """Another configuration is in force, from the next thing that is counted on."""
        membership = self.state.membership
        self._configuration = membership.index
        self._heard_at = NEVER
        acks.follow(membership.quorum, membership.members)
        self._reads.follow(membership)
        self.followers.follow(now)
        self.followers.announced(self._broadcast_heartbeat(now), now)
        self._advance_commit(acks, now)  # others decide now, and may have decided already

    @property
    def change_is_known(self) -> bool:
        """Whether, as far as this leader can tell, a quorum knows which configuration is in force,
        and will after a crash.

        From then on who was removed may stop: the others can elect a leader without it.
        """
        if self.reads is None or not self.change_is_durable:
            return False
        return self.followers.know(self.reads.confirmed)

    def _leave_if_removed(self, reads: ReadIndex, now: float) -> None:
        """A leader that votes no more must not go on (thesis 4.2.2). It sees to it first that the
        others know that it is gone, for an election timeout at most; the best of them is to stand.
        """
        if self.state.votes or not self.followers.can_do_without(reads.confirmed, now):
            return
        if (successor := self.handover.successor(self.followers.voters, now)) is not None:
            self._send_timeout_now(successor)
        self._change_role(RoleEvent.REMOVED, now)

    def _append_change(self, entry: NumberedConfiguration) -> int:
        index = self.view.extend(self.state.term, 1)
        self.state.membership.appended(index, entry)
        body = encode_configuration(*entry)
        self.handler.writes.append(ConfigurationEntry(index, self.state.term, body))
        return index

    def _tick_leader(self, now: float) -> None:
        voters = self.followers.voters
        timeout_s = self.config.election_timeout_s
        # Answers only get newer, so this is looked up no more often than somebody needs it.
        if now >= self.heartbeat_at or now - self._heard_at >= timeout_s:
            answers = {peer: dispatcher.last_answer_at for peer, dispatcher in voters.items()}
            self._heard_at = self.elector.quorum_heard_at(answers, now)
            if now - self._heard_at >= timeout_s:
                self._change_role(RoleEvent.QUORUM_LOST, now)
                return
        if self.handover.disk_stalled(now) and voters:
            # Nothing becomes durable here any more: let the best of the others lead at once.
            if (successor := self.handover.successor(voters, now)) is not None:
                self._send_timeout_now(successor)
            self._change_role(RoleEvent.DISK_STALLED, now)
            return
        if self.followers.changing:
            self._tick_change(now)
            if self.state.role is not Role.LEADER:
                return
        self.handover.tick(voters, self.commits_in_own_term, now)
        if now >= self.heartbeat_at:
            state = self.state
            self.freshness.heard(state.committed, state.term, state.applied, self._heard_at)
            self._broadcast_heartbeat(now)

    def _tick_change(self, now: float) -> None:
        if self.reads is not None:
            self._leave_if_removed(self.reads, now)
        self.followers.observe(now)
        membership, committed = self.state.membership, self.state.committed
        if self.state.role is Role.LEADER and membership.leave_due(committed):
            self._append_change(membership.propose_leave(committed))

    def _broadcast_heartbeat(self, now: float) -> int:
        """Send one to everybody; the number of the round."""
        self.heartbeat_at = self.config.next_heartbeat_at(now)
        number = self._reads.next_round(now)
        beat = Heartbeat(self.state.term, self.state.committed, number)
        self._outgoing.extend(Outgoing(peer, beat) for peer in self.dispatchers)
        return number

    def _send_timeout_now(self, target: str) -> None:
        # From now on votes for the target are free, whenever the message arrives.
        if self.lease is not None:
            self.lease.end()
        self._outgoing.append(Outgoing(target, TimeoutNow(self.state.term)))
