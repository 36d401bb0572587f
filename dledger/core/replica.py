"""One member of a group, as a pure state machine: messages and time in, effects out.

Each input (`receive`, `persisted`, `tick` and so on) marks the steps that it makes due on the
member's agenda (`dledger.core.agenda`). A driver takes the marked steps in their order:

1. `tick`, once a deadline has passed or a part asks for it;
2. `take_writes`, and carry them out on the store, in order;
3. if this member leads, `propose` the entries of the application, and append them to the store;
4. `confirm_reads`, `replicate` and `ask`, which fill the outbox; then send what is in it;
5. a sync, then `persisted`;
6. `take_outcomes`, and apply what is `appliable`, then `applied_to`.

A question (a pre-vote, a push) may leave at once. A message that rests on a promise (a vote, a
candidate's request for votes, an acknowledgement) waits in the outbox until `persisted` reports
that the promise is on disk, so a driver cannot send it too early. The member's own vote and its own
acknowledgement count by the same rule, as in etcd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.core.admission.admission import Admission
from dledger.core.admission.beginning import Hold, has_grown, needs_note
from dledger.core.admission.recalling import Recalling
from dledger.core.admission.recollections import Recollections
from dledger.core.admission.standing import Standing, Told
from dledger.core.agenda import APPLY, ASK, REPLICATE, TELL, TICK
from dledger.core.entry_dispatcher import BatchSizer
from dledger.core.entry_handler import EntryHandler
from dledger.core.followers import Followers
from dledger.core.following import Following
from dledger.core.handover import Handover, LeaderTransfer
from dledger.core.hard_state import HardState
from dledger.core.leader_elector import LeaderElector, is_granted_pre_vote
from dledger.core.leadership import Leadership
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState, Role
from dledger.core.membership.change_errors import (
    ConfigurationInvalid,
    GrowthNotNoted,
    LearnerStalled,
)
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import Change, Transition
from dledger.core.membership.configuration_codec import encode_configuration
from dledger.core.membership.membership import Membership
from dledger.core.messages import (
    Answer,
    FromLeader,
    Inquiry,
    Message,
    OfAnyTerm,
    ReadResponse,
    Recall,
    Recollection,
    ToLeader,
    VoteRequest,
    VoteResponse,
)
from dledger.core.orphans import Orphans
from dledger.core.outbox import Outbox, Outcomes, Outgoing, Writes
from dledger.core.patience import Patience
from dledger.core.promise_record import PromiseRecord
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.reads.freshness import Freshness
from dledger.core.reads.leader_lease import LeaderLease
from dledger.core.reads.member_reads import MemberReads
from dledger.core.reads.read_index import ReadIndex
from dledger.core.replica_config import ReplicaConfig
from dledger.core.shared_parts import SharedParts
from dledger.core.snapshot.snapshot_offer import NO_SNAPSHOTS, SnapshotSource
from dledger.core.snapshot.snapshot_receiver import SnapshotReceiver
from dledger.errors import InvariantBroken, LeadershipMoving, NotLeader, PeerFault

__all__ = ["Outcomes", "Outgoing", "Replica", "ReplicaConfig", "Writes"]

# A term grows by one per election, so no correct member is this far ahead. A member that followed
# such a term could run out of terms.
MAX_TERMS_AHEAD = 2**40


class Replica:
    """The protocol of one member. Holds indexes, terms and ranges; never a body, never a clock.

    It passes each input to the part that handles it: elections, following, leadership, reads or
    admission. The parts share the member's state and send through one outbox. The time that is
    passed in is that of the member's own clock. The parts get the time by `patience`, which stands
    still while the member is late; only leases ask it for the true time.

    `membership` holds the configurations found in the log and in a snapshot. Without it, the
    configuration that the group began with is in force. `orphans` are the committed entries here
    that the group lost.

    Attributes:
        agenda: the steps that are due.
        growth_is_noted: whether a note outside of the folder says that the group has grown beyond
            its first voters. The writer of the note sets it, before a change that needs the note.
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
        orphans: Orphans | None = None,
    ) -> None:
        membership = membership or Membership(config.began_with)
        self.config = config
        self.view = view
        self.patience = patience = Patience(config.look_interval_s, now)
        self.state = state = MemberState(config.self_id, membership, hard_state, view.last_index)
        self.agenda = state.agenda
        self.growth_is_noted = config.told is Told.GROWN
        self.record = PromiseRecord(state, hard_state)
        self.outbox = Outbox(self.record, self.agenda)
        shared = SharedParts(config, state, view, self.record, self.outbox, patience, random)
        self.handler = EntryHandler(state, view, orphans)
        self.handler.enter_term()
        self.elector = LeaderElector(shared, self.handler, now)
        self.admission = Admission(shared, standing, now)
        self.receiver = SnapshotReceiver(state, view, self.handler)
        self.freshness = Freshness(view, patience)
        timeout_s = config.election_timeout_s
        self.followers = Followers(state, view, batches, timeout_s, snapshots)
        self.recollections = Recollections(state, self.followers.dispatchers)
        self.recalling = Recalling(shared, self.admission.draw_number, now)
        self.handover = Handover(shared)
        self.member_reads = MemberReads(shared)
        self.leadership = Leadership(
            shared,
            self.handler,
            self.followers,
            self.handover,
            self.member_reads,
            self.freshness,
            self.admission,
            self.recollections,
            now,
        )
        self.elector.leadership = self.leadership
        self.following = Following(
            shared,
            self.elector,
            self.handler,
            self.receiver,
            self.freshness,
            self.admission,
            self.recollections,
        )
        self.dispatchers = self.followers.dispatchers

    # --- inputs -------------------------------------------------------------------------------

    def receive(self, sender: str, message: Message, now: float) -> None:
        """Handle one message. Requests are accepted from any node, because the sender may know a
        newer configuration than this member does; answers are accepted from members only.

        Raises PeerFault for a message that no correct member sends. Such a message has changed
        nothing, and the caller may go on using this member.
        """
        state = self.state
        if sender == state.self_id:
            return
        now -= self.patience.lost_s  # `at`, without a call for each message
        if message.term > state.term + MAX_TERMS_AHEAD:
            raise PeerFault(sender, f"it is in term {message.term}, this member in {state.term}")
        if (
            sender not in state.membership.members
            and isinstance(message, Answer)
            # Accept a removed member's acknowledgement of the entry that removed it.
            and (message.term != state.term or sender not in self.dispatchers)
        ):
            return
        if isinstance(message, OfAnyTerm):
            self._receive_of_any_term(sender, message, now)
            return
        if message.term > state.term and not is_granted_pre_vote(message):
            self.elector.follow_term(message.term, now)
        if isinstance(message, FromLeader):
            self.following.receive(sender, message, now)
        elif isinstance(message, ToLeader):
            if message.term != state.term or state.role is not Role.LEADER:
                return
            self.leadership.receive(sender, message, now)
            if not state.votes and (event := self.leadership.removed(now)) is not None:
                self.elector.change_role(event, now)
        elif isinstance(message, VoteResponse):
            self.elector.receive_response(sender, message, now)
            if not message.pre:
                self.recollections.entered(sender, message.term, voted=message.granted)
        elif isinstance(message, ReadResponse):
            self.member_reads.answered(message)
        else:
            self.admission.answered(sender, message)

    def _receive_of_any_term(self, sender: str, message: OfAnyTerm, now: float) -> None:
        if isinstance(message, Recall):
            self._receive_recall(sender, message)
        elif isinstance(message, Recollection):
            if (forgotten := self.recalling.answered(sender, message)) is not None:
                self.admission.doubt(now, forgotten)
        elif isinstance(message, VoteRequest):
            if not message.pre:
                self.recollections.entered(sender, message.term)
            self.elector.receive_request(sender, message, now)
        else:
            self._receive_inquiry(sender, message, now)

    def _receive_inquiry(self, sender: str, inquiry: Inquiry, now: float) -> None:
        """Answer a member in doubt. A leader also appends an entry that can prove the member.

        The sender's term is not followed, because the sender may have been removed.
        """
        if not self.record.is_durable:
            return  # the sender repeats its question
        steady = self.handover.transfer is None
        answer, begins = self.admission.asked(sender, inquiry, steady=steady)
        self.outbox.send(sender, answer)
        if begins:
            self.leadership.prove(sender, now)

    def _receive_recall(self, sender: str, recall: Recall) -> None:
        """Tell a member that has started what this one remembers of its promises. A leader stops
        counting earlier acknowledgements of that member, because its folder may have lost the
        entries.
        """
        self.leadership.forget_acknowledged(sender)
        promised, voted, held = self.recollections.asked(sender, recall.number)
        answer = Recollection(self.state.term, recall.number, promised, voted, held)
        self.outbox.send(sender, answer)

    def tick(self, now: float) -> None:
        """Do what is due at `now`: elections, heartbeats, the check that a quorum still answers."""
        now -= self.patience.lost_s
        agenda = self.agenda
        self.handover.observe(now)
        self.member_reads.expire(now)
        if self.state.recalls:
            self.recalling.tick(now)
        was_proven = self.state.proven
        self.admission.tick(self.record.durable, now)
        if self.state.proven and not was_proven and self.elector.is_alone:
            self.elector.stand_alone(now)
        if self.admission.take_birth():
            self.elector.stand_first(now)
        if self.state.role is Role.LEADER:
            event = self.leadership.tick(now)
            if event is not None:
                self.elector.change_role(event, now)
        elif now >= self.elector.deadline:
            may_lead = self.state.votes and self.state.proven and not self.state.recalls
            if not may_lead or self.handover.disk_stalled(now):
                # This member may not lead, or its disk could keep neither a vote nor an entry.
                self.elector.postpone(now)
            elif not self.elector.gives_way(now):
                self.elector.campaign(now)
        if self.leadership.unsettled or not self.state.proven or self.state.recalls:
            # Any message may matter to these, and others look at them after each turn.
            agenda.later |= TICK | REPLICATE | ASK | TELL

    def propose(self, count: int) -> tuple[int, int]:
        """Reserve the next `count` entries; return their first index and their term.

        The caller appends exactly these entries to its store in the same turn. Raises NotLeader or
        LeadershipMoving.
        """
        self.check_proposable()
        if self.handler.writes:
            raise InvariantBroken("writes must be taken before entries are proposed")
        self.agenda.due |= REPLICATE
        return self.view.extend(self.state.term, count), self.state.term

    def check_proposable(self) -> None:
        """Raise NotLeader or LeadershipMoving unless this member accepts proposals now."""
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
        """Append a change of the group; return its index. `take_outcomes` reports the outcome.

        For `expected` see Membership. Raises NotLeader, LeadershipMoving or one of ChangeRefused.
        """
        self.check_proposable()
        membership = self.state.membership
        committed = self.state.committed
        entry = membership.propose(changes, committed, transition=transition, expected=expected)
        size = len(encode_configuration(*entry))
        if size > self.config.max_change_bytes:
            problem = f"{size} bytes, but a segment has room for {self.config.max_change_bytes}"
            raise ConfigurationInvalid(problem)
        self.followers.check_change(entry.configuration)
        if not self.growth_is_noted and self.needs_note(entry.configuration):
            raise GrowthNotNoted([])
        return self.leadership.append_change(entry)

    def propose_leave(self) -> int:
        """Append the end of a joint phase; return its index. Raises as `propose_change`."""
        self.check_proposable()
        entry = self.state.membership.propose_leave(self.state.committed)
        return self.leadership.append_change(entry)

    def request_read(self, ticket: int) -> None:
        """Begin a linearizable read, on any member. `take_outcomes` reports the outcome."""
        self.member_reads.request(ticket)

    def awaits_disk(self, now: float) -> None:
        """Note that what was written waits for a sync."""
        disk = self.handover.disk
        disk.observe(self.view.last_index, self.state.durable, now - self.patience.lost_s)

    def persisted(self, index: int, epoch: int, promise: HardState | None, now: float) -> None:
        """Record that a sync ended: the log, as of truncation `epoch`, is durable up to `index`,
        and the record holds `promise`, if one was written.
        """
        now -= self.patience.lost_s
        if epoch == self.handler.epoch:
            self.state.durable = max(self.state.durable, min(index, self.view.last_index))
            if self.state.applied < self.state.committed:
                self.agenda.due |= APPLY
        if promise is not None:
            self.record.persisted(promise, index)
            self.following.confirm_when_durable()
            if self.record.is_durable:
                self.outbox.release()
                self.elector.count_own_vote(now)
        if self.state.role is not Role.LEADER:
            self.following.acknowledge()
        else:
            self.leadership.acknowledge(self.state.self_id, self.state.durable, now)

    def applied_to(self, index: int) -> None:
        self.state.apply(index)

    def transfer_leadership(self, target: str | None, now: float) -> LeaderTransfer | None:
        """Begin to hand leadership to a voter. Raises NotLeader or TransferFailed."""
        return self.handover.begin(target, self.followers.voters, self.patience.at(now))

    def forget_leader(self) -> None:
        """Treat the leader as lost. Raises LeaderKept with lease reads."""
        self.elector.forget_leader()

    def leader_gone(self, leader: str, term: int, now: float) -> bool:
        return self.elector.leader_gone(leader, term, self.patience.at(now))

    def restart_catch_up(self, learner: str, now: float) -> None:
        self.followers.restart_catch_up(learner, self.patience.at(now))

    def stalled(self, learner: str, now: float) -> LearnerStalled:
        return self.followers.stalled(learner, self.patience.at(now))

    def hold(self, now: float) -> Hold | None:
        return self.admission.hold(self.patience.at(now))

    def unreachable(self, peer: str, now: float) -> None:
        self.elector.unreachable(peer)
        if (dispatcher := self.dispatchers.get(peer)) is not None:
            dispatcher.lost(self.patience.at(now))

    def reachable(self, peer: str, now: float) -> None:
        now = self.patience.at(now)
        self.admission.reachable(now)
        self.elector.reachable(peer, now)
        # The question leaves before the first promise of this process.
        if (recall := self.recalling.question_to(peer)) is not None:
            self.outbox.send(peer, recall)
        if (dispatcher := self.dispatchers.get(peer)) is not None:
            dispatcher.reachable(now)

    # --- outputs ------------------------------------------------------------------------------

    def take_writes(self) -> Writes:
        """Return the writes for the store to make now, before anything is proposed or sent."""
        writes, self.handler.writes = self.handler.writes, []
        return Writes(writes, self.record.take())

    def confirm_reads(self, now: float) -> None:
        """Confirm open reads as far as possible."""
        reads = self.member_reads
        if reads.busy:
            now -= self.patience.lost_s
            begins_at = self.admission.begins_at(now)
            reads.pursue(self.leadership.broadcast_heartbeat, now, begins_at)

    def replicate(self, now: float) -> None:
        """Fill every follower's window, if this member leads."""
        self.leadership.pump(now - self.patience.lost_s)

    def ask(self, now: float) -> None:
        """Ask the other members what they know of this member's promises, if that is due."""
        now -= self.patience.lost_s
        inquiry = self.admission.question(now)
        if inquiry is not None and self.record.is_durable:  # else `question` repeats it soon
            self.outbox.broadcast(self.admission.asked_members, inquiry)
        if self.state.recalls and (recall := self.recalling.question(now)) is not None:
            self.outbox.broadcast(*recall)
        if self.state.role is not Role.LEADER:
            self.agenda.wake_by(self.admission.next_deadline)
            self.agenda.wake_by(self.recalling.next_deadline)

    def take_outcomes(self) -> Outcomes:
        """Return the outcomes of reads and of changes of the group, each once."""
        decided, self.state.decided = self.state.decided, []
        return Outcomes(*self.member_reads.take_outcomes(), decided)

    def next_deadline(self) -> float:
        """Return when a turn must look at the clock at the latest, by the member's own clock."""
        return self.patience.due(self.earliest_deadline())

    def earliest_deadline(self) -> float:
        """Look at the deadlines of all parts; return the earliest one, by the patience."""
        leads = self.state.role is Role.LEADER
        deadline = self.leadership.next_deadline if leads else self.elector.deadline
        if self.member_reads.busy:
            deadline = min(deadline, self.member_reads.next_deadline)
        if not leads:
            deadline = min(deadline, self.admission.next_deadline, self.recalling.next_deadline)
        return deadline

    @property
    def appliable(self) -> int:
        return min(self.state.committed, self.state.durable)

    # --- looking ------------------------------------------------------------------------------

    @property
    def acks(self) -> QuorumAckChecker | None:
        """The leader's count of acknowledgements; None unless this member leads."""
        return self.leadership.acks

    @property
    def reads(self) -> ReadIndex | None:
        """The leader's open reads; None unless this member leads."""
        return self.member_reads.index

    @property
    def lease(self) -> LeaderLease | None:
        """The leader's lease; None unless this member leads with lease reads on."""
        return self.member_reads.lease

    @property
    def fresh_as_of(self) -> float:
        """The true time as of which the applied state includes everything committed."""
        return self.freshness.as_of(self.state.applied)

    @property
    def commits_in_own_term(self) -> bool:
        return self.member_reads.commits_in_own_term

    def needs_note(self, configuration: Configuration) -> bool:
        """Return whether this member must note outside of its folder that the group has grown
        before this configuration comes into force: see `dledger.core.admission.beginning`.
        """
        return needs_note(self.config.self_id, self.config.began_with, configuration.members)

    @property
    def has_grown(self) -> bool:
        """Whether the group has, or had, members besides its first voters."""
        members = self.state.membership.members
        return self.admission.told is Told.GROWN or has_grown(self.config.began_with, members)
