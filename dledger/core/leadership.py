"""The work of a leader: acknowledgements, heartbeats, changes, and stepping down."""

from __future__ import annotations

from dledger.core.admission.admission import Admission
from dledger.core.admission.recollections import Recollections
from dledger.core.agenda import REPLICATE, TELL, TICK
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.entry_handler import ConfigurationEntry, EntryHandler, NoopEntry
from dledger.core.followers import Followers
from dledger.core.handover import Handover
from dledger.core.member_state import RoleEvent
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
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.reads.freshness import Freshness
from dledger.core.reads.member_reads import MemberReads
from dledger.core.reads.read_index import ReadIndex
from dledger.core.shared_parts import SharedParts


class Leadership:
    """The leader's side of the protocol. One object serves all terms; it is idle while this member
    does not lead.

    Attributes:
        acks: counts acknowledgements; None unless this member leads.
        heartbeat_at: when the next heartbeats leave.
    """

    __slots__ = (
        "_admission",
        "_agenda",
        "_announces",
        "_config",
        "_configuration",
        "_followers",
        "_freshness",
        "_handler",
        "_handover",
        "_heard_at",
        "_outbox",
        "_patience",
        "_reads",
        "_recollections",
        "_record",
        "_serves",
        "_silence_s",
        "_state",
        "_view",
        "acks",
        "heartbeat_at",
    )

    def __init__(
        self,
        shared: SharedParts,
        handler: EntryHandler,
        followers: Followers,
        handover: Handover,
        reads: MemberReads,
        freshness: Freshness,
        admission: Admission,
        recollections: Recollections,
        now: float,
    ) -> None:
        self._config = shared.config
        self._silence_s = shared.config.quorum_silence_s
        self._state = shared.state
        self._agenda = shared.state.agenda
        self._view = shared.view
        self._record = shared.record
        self._outbox = shared.outbox
        self._patience = shared.patience
        self._handler = handler
        self._followers = followers
        self._handover = handover
        self._reads = reads
        self._freshness = freshness
        self._admission = admission
        self._recollections = recollections
        self.acks: QuorumAckChecker | None = None
        self.heartbeat_at = now
        # The configuration that this leader has switched to.
        self._configuration = shared.state.membership.index
        self._announces = False  # whether a quorum does not know that configuration yet
        self._serves = False  # whether it has committed an entry of its own term
        self._heard_at = now  # when a quorum was last heard, as of the last check

    # --- beginning and end --------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Begin to lead: open the term with a no-op entry, and announce it to the members."""
        state = self._state
        state.membership.elected(self.append_noop())
        self._configuration = state.membership.index
        self._announces = self._serves = False
        self._heard_at = now  # each follower counts as heard just now
        self.acks = QuorumAckChecker(state.membership.quorum, state.term)
        self._reads.lead()
        self._recollections.followed(None)
        self._followers.follow(now)
        self.broadcast_heartbeat(now)

    def end(self) -> None:
        self._reads.stop_leading()
        self._admission.stop_leading()
        self._handover.give_up("the leader stepped down")
        self._state.follow(None)
        self._recollections.stop_leading()
        self._followers.clear()
        self.acks = None

    # --- messages of followers ----------------------------------------------------------------

    def receive(self, sender: str, message: ToLeader, now: float) -> None:
        """Handle one answer or question.

        Raises PeerFault for an answer that no correct member gives.
        """
        if (dispatcher := self._followers.dispatchers.get(sender)) is None:
            return  # the sender is not a member
        if isinstance(message, ReadRequest):
            self._reads.begin_remote(sender, message)
        elif isinstance(message, HeartbeatResponse):
            dispatcher.heard(now)
            if message.round > 0 and not dispatcher.proven:
                dispatcher.proven = True  # a member in doubt confirms only round 0
                self._agenda.due |= TELL
            self._reads.confirm(sender, message)
        elif isinstance(message, InstallSnapshotResponse):
            dispatcher.receive_install(message, now)
        else:
            self._receive_acknowledgement(dispatcher, message, now)

    def _receive_acknowledgement(
        self, dispatcher: EntryDispatcher, message: PushResponse, now: float
    ) -> None:
        dispatcher.receive(message, now)
        if message.proven:
            self.acknowledge(dispatcher.peer, message.match, now)
        if dispatcher.take_regression():
            # Either the peer lost entries that it had acknowledged, or the refusal is an old one.
            # Only the peer can tell which.
            self.forget_acknowledged(dispatcher.peer)
            reminder = Reminder(self._state.term, dispatcher.promised_index)
            self._outbox.send(dispatcher.peer, reminder)
            if dispatcher.promised_index < dispatcher.match_index:
                # The peer was in doubt, and has the folder again that it had before: it lost
                # nothing that it promised.
                dispatcher.start_over(now)

    def acknowledge(self, member: str, index: int, now: float) -> None:
        """Count that `member`, which may be this one, has the log durably up to `index`."""
        if self.acks is not None and self.acks.acknowledge(member, index):
            self._advance_commit(self.acks, now)

    def forget_acknowledged(self, member: str) -> None:
        """Stop counting what a member acknowledged, until it acknowledges entries again."""
        if self.acks is not None:
            self.acks.forget(member)

    def prove(self, asker: str, now: float) -> None:
        """Append an entry that can prove a member in doubt, and forget what it acknowledged."""
        self.append_noop()
        self.forget_acknowledged(asker)
        if (dispatcher := self._followers.dispatchers.get(asker)) is not None:
            dispatcher.start_over(now)

    def _advance_commit(self, acks: QuorumAckChecker, now: float) -> None:
        committed = acks.committed(self._view)
        if committed is None or not self._state.commit(committed):
            return
        if not self._serves:
            self._serves = True
            self._agenda.due |= TELL
        self._reads.committed()
        self._handler.has_all()  # the group has all entries of this leader
        self._announce_commit(now)
        if self._state.membership.index != self._configuration:
            self._configuration_changed(acks, now)

    def _announce_commit(self, now: float) -> None:
        """Have the followers told, unless the next push comes first."""
        agenda = self._agenda
        for dispatcher in self._followers.dispatchers.values():
            if dispatcher.phase is not Phase.COMMIT:
                continue
            if dispatcher.commit_notice_at <= now:
                agenda.due |= REPLICATE
            elif dispatcher.commit_notice_at < agenda.wakes_at:
                agenda.wakes_at = dispatcher.commit_notice_at

    # --- changes of the group -----------------------------------------------------------------

    def _configuration_changed(self, acks: QuorumAckChecker, now: float) -> None:
        """Switch everything that counts members to the configuration in force."""
        membership = self._state.membership
        self._configuration = membership.index
        self._announces = True
        self._agenda.due |= TICK | REPLICATE | TELL
        acks.follow(membership.quorum, membership.members)
        self._reads.follow(membership)
        self._followers.follow(now)
        self._look_for_quorum(now)
        self._followers.announced(self.broadcast_heartbeat(now), now)
        self._advance_commit(acks, now)  # the new quorum may have acknowledged more already

    @property
    def change_is_known(self) -> bool:
        """Whether, as far as this leader can tell, a quorum knows which configuration is in force,
        and will still know it after a crash.

        From then on removed members may stop: the remaining members can elect a leader alone.
        """
        if self._reads.index is None or not self._record.change_is_durable:
            return False
        return self._followers.quorum_knows(self._reads.index.confirmed)

    def removed(self, now: float) -> RoleEvent | None:
        """Return REMOVED if this leader no longer votes and must step down (thesis 4.2.2).

        It first waits until a quorum knows of its removal, for an election timeout at most. Then it
        tells the best of the other voters to stand.
        """
        reads: ReadIndex | None = self._reads.index
        if self._state.votes or reads is None:
            return None
        if not self._followers.allow_step_down(reads.confirmed, now):
            return None
        self._tell_successor(now)
        return RoleEvent.REMOVED

    def append_noop(self) -> int:
        index = self._view.extend(self._state.term, 1)
        self._handler.write(NoopEntry(index, self._state.term))
        self._agenda.due |= REPLICATE
        return index

    def append_change(self, entry: NumberedConfiguration) -> int:
        index = self._view.extend(self._state.term, 1)
        self._state.membership.appended(index, entry)
        body = encode_configuration(*entry)
        self._handler.write(ConfigurationEntry(index, self._state.term, body))
        self._agenda.due |= TICK | REPLICATE | TELL
        return index

    # --- time ---------------------------------------------------------------------------------

    def tick(self, now: float) -> RoleEvent | None:
        """Do what is due at `now`; return why this leader must step down, if it must."""
        voters = self._followers.voters
        silence_s = self._silence_s
        # The times of answers only grow, so check only with the heartbeats and at the deadline.
        # Compute the same sums as `next_deadline`: a difference may be rounded the other way.
        if now >= self.heartbeat_at or now >= self._heard_at + silence_s:
            self._look_for_quorum(now)
            if now >= self._heard_at + silence_s:
                return RoleEvent.QUORUM_LOST
        if self._handover.disk_stalled(now) and voters:
            # This disk makes nothing durable any more: tell the best of the other voters to stand.
            self._tell_successor(now)
            return RoleEvent.DISK_STALLED
        if self._announces:
            self._announces = not self.change_is_known
        if self._followers.changing:
            if (removed := self.removed(now)) is not None:
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
        answers[self._state.self_id] = now
        self._heard_at = self._state.membership.quorum.reached(answers, float("-inf"))
        self._agenda.wake_by(self._heard_at + self._silence_s)

    @property
    def unsettled(self) -> bool:
        """Whether a change or a transfer runs, so that any message may matter.

        A change runs until a quorum knows it: callers of `Node.change` wait for that, and look only
        when a turn has ended.
        """
        return self._followers.changing or self._announces or self._handover.transfer is not None

    @property
    def next_deadline(self) -> float:
        """When `tick` or `pump` has something to do without new input."""
        committed = self._state.committed
        deadline = min(self.heartbeat_at, self._heard_at + self._silence_s)
        deadline = min(deadline, self._handover.next_deadline(self._followers.voters))
        for dispatcher in self._followers.dispatchers.values():
            due = dispatcher.next_deadline(committed)
            if due < deadline:  # noqa: PLR1730  # min() costs a call, once a follower and turn
                deadline = due
        return deadline

    # --- messages to followers ----------------------------------------------------------------

    def broadcast_heartbeat(self, now: float) -> int:
        """Send a heartbeat to every follower; return the number of the round."""
        next_at = self._config.next_heartbeat_at(self._patience.true(now))
        self.heartbeat_at = self._patience.at(next_at)
        self._agenda.wake_by(self.heartbeat_at)
        number = self._reads.next_round(now)
        beat = Heartbeat(self._state.term, self._state.committed, number)
        self._outbox.broadcast(self._followers.dispatchers, beat)
        return number

    def pump(self, now: float) -> None:
        """Fill every follower's window, and tell the target of a transfer when to stand."""
        committed, earliest = self._state.committed, float("inf")
        for peer, dispatcher in self._followers.dispatchers.items():
            for push in dispatcher.pump(committed, now):
                self._outbox.send(peer, push)
            if dispatcher.phase is Phase.INSTALL_SNAPSHOT:
                for piece in dispatcher.pump_snapshot(now):
                    self._outbox.send(peer, piece)
            earliest = min(earliest, dispatcher.next_deadline(committed))
        if (successor := self._handover.due_target(self._followers.voters, now)) is not None:
            self._tell_to_stand(successor)
        earliest = min(earliest, self._handover.next_deadline(self._followers.voters))
        self._agenda.wake_by(earliest)

    def _tell_successor(self, now: float) -> None:
        if (successor := self._handover.successor(self._followers.voters, now)) is not None:
            self._tell_to_stand(successor)

    def _tell_to_stand(self, target: str) -> None:
        # Whenever the message arrives, voters may vote for the target in spite of their promises.
        if self._reads.lease is not None:
            self._reads.lease.end()
        self._outbox.send(target, TimeoutNow(self._state.term))
