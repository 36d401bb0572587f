"""What a member does while it leads: acknowledgements, heartbeats, changes, and stepping down."""

from __future__ import annotations

from dledger.core.admission.admission import Admission
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.entry_handler import ConfigurationEntry, EntryHandler, NoopEntry
from dledger.core.followers import Followers
from dledger.core.leader_elector import LeaderElector
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState, RoleEvent
from dledger.core.membership.configuration_codec import NumberedConfiguration, encode_configuration
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshotResponse,
    Phase,
    PushResponse,
    ReadRequest,
    Reminder,
    TimeoutNow,
    ToLeader,
)
from dledger.core.outbox import Outbox
from dledger.core.promise_record import PromiseRecord
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.reads.freshness import Freshness
from dledger.core.reads.member_reads import MemberReads
from dledger.core.reads.read_index import ReadIndex
from dledger.core.replica_config import ReplicaConfig
from dledger.core.transfer.handover import Handover


class Leadership:
    """The leader's side of the protocol, one term after another; idle while another member leads.

    Attributes:
        acks: counts acknowledgements; None on a member that does not lead.
        heartbeat_at: when the next heartbeats leave.
    """

    __slots__ = (
        "_admission",
        "_config",
        "_configuration",
        "_elector",
        "_followers",
        "_freshness",
        "_handler",
        "_handover",
        "_heard_at",
        "_outbox",
        "_reads",
        "_record",
        "_state",
        "_view",
        "acks",
        "heartbeat_at",
    )

    def __init__(
        self,
        config: ReplicaConfig,
        state: MemberState,
        view: LedgerView,
        record: PromiseRecord,
        outbox: Outbox,
        elector: LeaderElector,
        handler: EntryHandler,
        followers: Followers,
        handover: Handover,
        reads: MemberReads,
        freshness: Freshness,
        admission: Admission,
        now: float,
    ) -> None:
        self._config = config
        self._state = state
        self._view = view
        self._record = record
        self._outbox = outbox
        self._elector = elector
        self._handler = handler
        self._followers = followers
        self._handover = handover
        self._reads = reads
        self._freshness = freshness
        self._admission = admission
        self.acks: QuorumAckChecker | None = None
        self.heartbeat_at = now
        self._configuration = state.membership.index  # what this leader goes by
        self._heard_at = now  # when a quorum was last heard, as of the last look

    # --- beginning and end --------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """This member was elected: open the term with an entry of its own."""
        state = self._state
        state.membership.elected(self.append_noop())
        self._configuration = state.membership.index
        self._heard_at = now  # each follower counts as heard just now
        self.acks = QuorumAckChecker(state.membership.quorum, state.term)
        self._reads.lead()
        self._followers.follow(now)
        self.broadcast_heartbeat(now)

    def end(self, now: float) -> None:
        """This member leads no more."""
        self._reads.leave_office()
        self._admission.leave_office()
        self._handover.give_up("the leader stepped down")
        self._state.leader = None
        self._followers.clear()
        self.acks = None
        self._elector.postpone(now)

    # --- what followers say -------------------------------------------------------------------

    def receive(self, sender: str, message: ToLeader, now: float) -> RoleEvent | None:
        """Take one answer or question; why this leader must step down, if it must.

        Raises PeerFault for an answer that no correct member gives.
        """
        if (dispatcher := self._followers.dispatchers.get(sender)) is None:
            return None  # it is no member yet, or no more
        if isinstance(message, ReadRequest):
            self._reads.request_of(sender, message)
        elif isinstance(message, HeartbeatResponse):
            dispatcher.heard(now)
            if message.round > 0:
                dispatcher.proven = True  # it confirms nothing while it is in doubt
            self._reads.confirm(sender, message)
            return self._removed(now)
        elif isinstance(message, InstallSnapshotResponse):
            dispatcher.receive_install(message, now)
        else:
            self._receive_acknowledgement(dispatcher, message, now)
        return None

    def _receive_acknowledgement(
        self, dispatcher: EntryDispatcher, message: PushResponse, now: float
    ) -> None:
        dispatcher.receive(message, now)
        if message.proven:
            self.acknowledge(dispatcher.peer, message.match, now)
        if dispatcher.take_regression():
            # The peer refused what it had acknowledged, or that was an old answer: it can tell.
            self.forget_acknowledged(dispatcher.peer)
            reminder = Reminder(self._state.term, dispatcher.match_index)
            self._outbox.send(dispatcher.peer, reminder)

    def acknowledge(self, member: str, index: int, now: float) -> None:
        """`member` has the log up to `index`, durably; this member counts like any other."""
        if self.acks is not None and self.acks.acknowledge(member, index):
            self._advance_commit(self.acks, now)

    def forget_acknowledged(self, member: str) -> None:
        """What a member acknowledged may be lost: it counts again when it says so again."""
        if self.acks is not None:
            self.acks.forget(member)

    def prove(self, asker: str, now: float) -> None:
        """A member in doubt asked: append an entry that can prove it, and begin its log anew."""
        self.append_noop()
        self.forget_acknowledged(asker)
        if (dispatcher := self._followers.dispatchers.get(asker)) is not None:
            dispatcher.start_over(now)

    def _advance_commit(self, acks: QuorumAckChecker, now: float) -> None:
        committed = acks.committed(self._view)
        if committed is None or not self._state.commit(committed):
            return
        self._reads.committed()
        if self._state.membership.index != self._configuration:
            self._configuration_changed(acks, now)

    # --- changes of the group -----------------------------------------------------------------

    def _configuration_changed(self, acks: QuorumAckChecker, now: float) -> None:
        """Another configuration is in force, from the next thing that is counted on."""
        membership = self._state.membership
        self._configuration = membership.index
        acks.follow(membership.quorum, membership.members)
        self._reads.follow(membership)
        self._followers.follow(now)
        self._look_for_quorum(now)
        self._followers.announced(self.broadcast_heartbeat(now), now)
        self._advance_commit(acks, now)  # others decide now, and may have decided already

    @property
    def change_is_known(self) -> bool:
        """Whether, as far as this leader can tell, a quorum knows which configuration is in force,
        and will after a crash.

        From then on removed members may stop: the others can elect a leader without them.
        """
        if self._reads.index is None or not self._record.change_is_durable:
            return False
        return self._followers.know(self._reads.index.confirmed)

    def _removed(self, now: float) -> RoleEvent | None:
        """A leader that votes no more must not go on (thesis 4.2.2). It sees to it first that the
        others know that it is gone, for an election timeout at most; the best of them is to stand.
        """
        reads: ReadIndex | None = self._reads.index
        if self._state.votes or reads is None:
            return None
        if not self._followers.can_do_without(reads.confirmed, now):
            return None
        self._tell_successor(now)
        return RoleEvent.REMOVED

    def append_noop(self) -> int:
        """Append an empty entry; its index."""
        index = self._view.extend(self._state.term, 1)
        self._handler.writes.append(NoopEntry(index, self._state.term))
        return index

    def append_change(self, entry: NumberedConfiguration) -> int:
        """Append a change of the group; its index."""
        index = self._view.extend(self._state.term, 1)
        self._state.membership.appended(index, entry)
        body = encode_configuration(*entry)
        self._handler.writes.append(ConfigurationEntry(index, self._state.term, body))
        return index

    # --- time ---------------------------------------------------------------------------------

    def tick(self, now: float) -> RoleEvent | None:
        """Let time pass; why this leader must step down, if it must."""
        voters = self._followers.voters
        timeout_s = self._config.election_timeout_s
        # Answers only get newer, so this is looked up no more often than it is needed.
        # The sums are those of `next_deadline`: a difference may be rounded the other way.
        if now >= self.heartbeat_at or now >= self._heard_at + timeout_s:
            self._look_for_quorum(now)
            if now >= self._heard_at + timeout_s:
                return RoleEvent.QUORUM_LOST
        if self._handover.disk_stalled(now) and voters:
            # Nothing becomes durable here any more: let the best of the others lead at once.
            self._tell_successor(now)
            return RoleEvent.DISK_STALLED
        if self._followers.changing:
            if (removed := self._removed(now)) is not None:
                return removed
            self._followers.observe(now)
            membership, committed = self._state.membership, self._state.committed
            if membership.leave_due(committed):
                self.append_change(membership.propose_leave(committed))
        self._handover.tick(voters, self._reads.commits_in_own_term, now)
        if now >= self.heartbeat_at:
            state = self._state
            self._freshness.heard(state.committed, state.term, state.applied, self._heard_at)
            self.broadcast_heartbeat(now)
        return None

    def _look_for_quorum(self, now: float) -> None:
        voters = self._followers.voters
        answers = {peer: dispatcher.last_answer_at for peer, dispatcher in voters.items()}
        self._heard_at = self._elector.quorum_heard_at(answers, now)

    @property
    def unsettled(self) -> bool:
        """Whether anything that arrives may be what a change or a transfer waits for."""
        return self._followers.changing or self._handover.transfer is not None

    @property
    def next_deadline(self) -> float:
        """When `tick` or `pump` has something to do though nothing arrives."""
        committed = self._state.committed
        deadline = min(self.heartbeat_at, self._heard_at + self._config.election_timeout_s)
        for dispatcher in self._followers.dispatchers.values():
            deadline = min(deadline, dispatcher.next_deadline(committed))
        return deadline

    # --- what it says -------------------------------------------------------------------------

    def broadcast_heartbeat(self, now: float) -> int:
        """Send one to every follower; the number of the round."""
        self.heartbeat_at = self._config.next_heartbeat_at(now)
        number = self._reads.next_round(now)
        beat = Heartbeat(self._state.term, self._state.committed, number)
        self._outbox.broadcast(self._followers.dispatchers, beat)
        return number

    def pump(self, now: float) -> None:
        """Fill every follower's window, and tell the target of a transfer when to stand."""
        committed = self._state.committed
        for peer, dispatcher in self._followers.dispatchers.items():
            for push in dispatcher.pump(committed, now):
                self._outbox.send(peer, push)
            if dispatcher.phase is Phase.INSTALL_SNAPSHOT:
                for piece in dispatcher.pump_snapshot(now):
                    self._outbox.send(peer, piece)
        if (successor := self._handover.tell(self._followers.voters, now)) is not None:
            self._tell_to_stand(successor)

    def _tell_successor(self, now: float) -> None:
        if (successor := self._handover.successor(self._followers.voters, now)) is not None:
            self._tell_to_stand(successor)

    def _tell_to_stand(self, target: str) -> None:
        # From now on votes for the target are free, whenever the message arrives.
        if self._reads.lease is not None:
            self._reads.lease.end()
        self._outbox.send(target, TimeoutNow(self._state.term))
