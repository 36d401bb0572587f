"""How a member handles the messages of a leader: pushes, heartbeats and snapshots."""

from __future__ import annotations

from dledger.core.admission.admission import Admission
from dledger.core.admission.recollections import Recollections
from dledger.core.admission.standing import Forgotten
from dledger.core.entry_handler import EntryHandler
from dledger.core.leader_elector import LeaderElector
from dledger.core.member_state import Role, RoleEvent
from dledger.core.messages import (
    FromLeader,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Reminder,
    TimeoutNow,
)
from dledger.core.outbox import Outgoing
from dledger.core.reads.freshness import Freshness
from dledger.core.shared_parts import SharedParts
from dledger.core.snapshot.snapshot_receiver import SnapshotReceiver
from dledger.errors import PeerFault


class Following:
    """Handles the messages of the present term's leader, and answers them."""

    __slots__ = (
        "_admission",
        "_confirmation",
        "_elector",
        "_freshness",
        "_handler",
        "_outbox",
        "_receiver",
        "_recollections",
        "_record",
        "_state",
    )

    def __init__(
        self,
        shared: SharedParts,
        elector: LeaderElector,
        handler: EntryHandler,
        receiver: SnapshotReceiver,
        freshness: Freshness,
        admission: Admission,
        recollections: Recollections,
    ) -> None:
        self._state = shared.state
        self._record = shared.record
        self._outbox = shared.outbox
        self._elector = elector
        self._handler = handler
        self._receiver = receiver
        self._freshness = freshness
        self._admission = admission
        self._recollections = recollections
        # The answer to the last heartbeat, if it must wait until the configuration is durable.
        self._confirmation: Outgoing | None = None

    def receive(self, sender: str, message: FromLeader, now: float) -> None:
        """Handle one message of a leader.

        Raises PeerFault for a message that no correct leader sends.
        """
        state = self._state
        if message.term < state.term:
            # The sender was deposed, or this member's higher term keeps it out: tell it the term.
            self._outbox.promise(sender, HeartbeatResponse(state.term, 0))
            return
        if state.role is Role.LEADER:
            raise PeerFault(sender, f"it leads term {state.term}, as {state.self_id} does")
        if state.leader is None:
            self._elector.change_role(RoleEvent.LEADER_SEEN, now)
            state.follow(sender)
            self._recollections.followed(sender)
        elif state.leader != sender:
            raise PeerFault(sender, f"it leads term {state.term}, as {state.leader} does")
        if isinstance(message, TimeoutNow):
            if state.votes and state.proven and not state.recalls:
                self._elector.stand(RoleEvent.HANDED_OVER, now)
            return
        self._elector.heard_leader(now)
        if isinstance(message, Reminder):
            if message.acknowledged > state.durable:
                # The disk lost synced entries, or the folder is an older copy.
                told = (sender, message.term, message.acknowledged)
                self._admission.doubt(now, Forgotten(*told, state.term, state.durable))
        elif isinstance(message, Heartbeat):
            self._handler.commit(message.committed)
            self._freshness.heard(message.committed, state.term, state.applied, now)
            self._confirm(sender, message.round)
        elif isinstance(message, InstallSnapshot):
            self._receiver.handle(message)
        elif (answer := self._handler.handle(message)) is not None:
            self._outbox.promise(sender, answer)

    def acknowledge(self) -> None:
        """Acknowledge what a finished sync made durable."""
        if self._state.leader is None:
            return
        if (answer := self._handler.acknowledgement()) is not None:
            self._outbox.promise(self._state.leader, answer)

    def answer_snapshots(self) -> None:
        if self._state.leader is not None:
            for answer in self._receiver.take_answers():
                self._outbox.promise(self._state.leader, answer)

    def _confirm(self, leader: str, round_number: int) -> None:
        """Answer a heartbeat. A member in doubt confirms no round and promises nothing. A member
        that could forget in a crash which configuration is in force confirms once that is durable.
        """
        state, promised_ms = self._state, self._elector.promised_ms
        seen = round_number if state.proven else 0
        if not self._record.change_is_durable:
            self._confirmation = Outgoing(leader, HeartbeatResponse(state.term, seen, promised_ms))
            seen = 0
        self._outbox.promise(leader, HeartbeatResponse(state.term, seen, promised_ms))

    def confirm_when_durable(self) -> None:
        """Answer the last heartbeat, if its answer has waited for the record."""
        if self._confirmation is not None and self._record.change_is_durable:
            leader, answer = self._confirmation
            self._confirmation = None
            if answer.term == self._state.term:
                self._outbox.promise(leader, answer)
