"""One member's doubts: about its own folder, and about what others have that acknowledged it.

`Admission` says what must be proven; this carries the questions and the answers.
"""

from __future__ import annotations

from collections.abc import Callable

from dledger.core.admission.admission import Admission
from dledger.core.admission.standing import Standing
from dledger.core.electing_member import ElectingMember
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.entry_handler import NoopEntry
from dledger.core.followers import Followers
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import LedgerView
from dledger.core.membership.membership import Membership
from dledger.core.messages import HeartbeatResponse, Inquiry, Reminder
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.replica_config import ReplicaConfig
from dledger.core.transfer.handover import Handover
from dledger.core.turn_output import Outgoing


class ProvingMember(ElectingMember):
    """The part of a member's protocol that has to do with lost promises."""

    followers: Followers
    handover: Handover
    acks: QuorumAckChecker | None

    def __init__(
        self,
        config: ReplicaConfig,
        view: LedgerView,
        hard_state: HardState,
        membership: Membership,
        random: Callable[[], float],
        now: float,
        standing: Standing,
    ) -> None:
        super().__init__(config, view, hard_state, membership, random, now)
        self.admission = Admission(config, self.state, view, standing, random, now)
        self._confirmation: Outgoing | None = None  # of the last heartbeat, if it has to wait

    # --- this member --------------------------------------------------------------------------

    def _ask_what_was_forgotten(self, now: float) -> None:
        inquiry = self.admission.question(now)
        if inquiry is not None and self._promise_is_durable:  # else it is asked again soon
            self._outgoing.extend(Outgoing(peer, inquiry) for peer in self.admission.asked_members)

    def _take_reminder(self, reminder: Reminder, now: float) -> None:
        if reminder.acknowledged > self.state.durable:
            self.admission.doubt(now)  # the disk lost what it had synced

    def _confirm_leader(self, leader: str, round_number: int) -> None:
        """Answer a heartbeat. A member in doubt confirms no round, and promises nothing; one that
        could still forget which configuration is in force confirms as soon as it cannot.
        """
        state, promised_ms = self.state, self.elector.promised_ms
        seen = round_number if state.proven else 0
        if not self.change_is_durable:
            self._confirmation = Outgoing(leader, HeartbeatResponse(state.term, seen, promised_ms))
            seen = 0
        self._promise(leader, HeartbeatResponse(state.term, seen, promised_ms))

    def _confirm_when_durable(self) -> None:
        """A sync ended."""
        if self._confirmation is not None and self.change_is_durable:
            leader, answer = self._confirmation
            self._confirmation = None
            if answer.term == self.state.term:
                self._promise(leader, answer)

    # --- others -------------------------------------------------------------------------------

    def _receive_inquiry(self, sender: str, inquiry: Inquiry, now: float) -> None:
        """Answer a member in doubt; as leader, append an entry that can prove it.

        Its term is not followed: whoever was removed may ask as well.
        """
        if not self._promise_is_durable:
            return  # it asks again
        steady = self.handover.transfer is None
        answer, begins = self.admission.asked(sender, inquiry, steady=steady)
        self._outgoing.append(Outgoing(sender, answer))
        if begins:
            index = self.view.extend(self.state.term, 1)
            self.handler.writes.append(NoopEntry(index, self.state.term))
            self._forget_acknowledged(sender)
            if (dispatcher := self.followers.dispatchers.get(sender)) is not None:
                dispatcher.start_over(now)

    def _remind(self, dispatcher: EntryDispatcher) -> None:
        """A peer refused what it had acknowledged, or that was an old answer: it can tell."""
        if dispatcher.take_regression():
            self._forget_acknowledged(dispatcher.peer)
            reminder = Reminder(self.state.term, dispatcher.match_index)
            self._outgoing.append(Outgoing(dispatcher.peer, reminder))

    def _forget_acknowledged(self, peer: str) -> None:
        if self.acks is not None:
            self.acks.forget(peer)
