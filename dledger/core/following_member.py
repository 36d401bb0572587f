"""The part of a member's protocol that follows a leader: its pushes, its heartbeats, its word."""

from __future__ import annotations

from collections.abc import Callable

from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import Role, RoleEvent
from dledger.core.membership.membership import Membership
from dledger.core.messages import (
    FromLeader,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Reminder,
    TimeoutNow,
)
from dledger.core.proving_member import ProvingMember
from dledger.core.reads.freshness import Freshness
from dledger.core.replica_config import ReplicaConfig
from dledger.core.snapshot.snapshot_receiver import SnapshotReceiver
from dledger.errors import InvariantBroken


class FollowingMember(ProvingMember):
    """Takes what the leader of the present term says, and answers it."""

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
        super().__init__(config, view, hard_state, membership, random, now, standing)
        self.receiver = SnapshotReceiver(self.state, view, self.handler)
        self.freshness = Freshness(view)

    @property
    def fresh_as_of(self) -> float:
        """The applied state includes all that was committed then: see Freshness."""
        return self.freshness.as_of(self.state.applied)

    def _receive_from_leader(self, sender: str, message: FromLeader, now: float) -> None:
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
            if state.votes and state.proven:
                self._stand(RoleEvent.HANDED_OVER, now)
            return
        self.elector.heard_leader(now)
        if isinstance(message, Reminder):
            self._take_reminder(message, now)
            return
        if isinstance(message, Heartbeat):
            self.handler.commit(message.committed)
            self.freshness.heard(message.committed, state.term, state.applied, now)
            self._confirm_leader(sender, message.round)
            return
        if isinstance(message, InstallSnapshot):
            self.receiver.handle(message)
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
