"""Hands leadership on from a member whose state machine has stopped before an entry.

Such a member can be elected, since it stores entries like the others. If no other member is able
either, it leads on, so that members can be changed and the log can be read.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from dledger.core.member_state import Role
from dledger.core.replica import Replica
from dledger.errors import Rejected

# How often the task checks; a transfer takes one election timeout at most.
LOOK_S = 0.1


class SteppingAside:
    """The task of one member.

    Args:
        replica: of the member.
        is_able: whether the machine of another member still runs, as far as is known.
        hand_over: begins to hand leadership to a member. May raise Rejected.
    """

    def __init__(
        self, replica: Replica, is_able: Callable[[str], bool], hand_over: Callable[[str], object]
    ) -> None:
        self._replica = replica
        self._is_able = is_able
        self._hand_over_to = hand_over
        self._is_stopped = False
        self._begun = trio.lowlevel.ParkingLot()

    def begin(self) -> None:
        """Note that the state machine has stopped."""
        self._is_stopped = True
        self._begun.unpark_all()

    def end(self) -> None:
        """Note that the state machine runs again."""
        self._is_stopped = False

    async def run(self) -> None:
        """Hand leadership on, for ever, whenever this member leads while its machine is stopped."""
        while True:
            while not self._is_stopped:
                await self._begun.park()
            self._hand_over()
            await trio.sleep(LOOK_S)

    def _hand_over(self) -> None:
        replica = self._replica
        if replica.state.role is not Role.LEADER or replica.handover.transfer is not None:
            return
        voters = replica.state.membership.voting_members
        able = [
            (dispatcher.match_index, peer)
            for peer, dispatcher in replica.dispatchers.items()
            if peer in voters and self._is_able(peer)
        ]
        if not able:
            return
        try:
            self._hand_over_to(max(able)[1])
        except Rejected:
            return  # the member does not answer now: the next look tries again
