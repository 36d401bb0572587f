"""The order in which members ask for votes early: once the process of their leader has ended.

All of them learn of it within milliseconds, so chance alone would have two of them stand at once.
They take turns instead, in the order of their names from the lost leader's on, which all of them
know; a split vote, which costs an election timeout, needs more than one of them at a time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

# The first one waits for so long, as a share of the election timeout: 10 ms of 500. The others are
# to have learnt by then that the leader is gone, or they refuse.
FIRST_TURN = 0.02
# So long is a turn: 25 ms of 500. Asking, being answered, and syncing two votes fit into it.
TURN = 0.05


class EarlyTurns(NamedTuple):
    """When one member asks. Times in seconds."""

    first_s: float  # from the moment when it learnt of the end
    round_s: float  # from then on, from one time to the next

    @classmethod
    def of(
        cls, member: str, leader: str, voters: Collection[str], timeout_s: float, spread: int = 0
    ) -> EarlyTurns:
        """The turns of `member`, one of the `voters`, which lost that leader.

        Groups with different `spread` begin with different members: one that takes over from a
        process which led many groups does not lead all of them.
        """
        order = sorted(voters)
        at = order.index(leader) if leader in voters else len(order)
        others = order[at + 1 :] + order[:at]
        place = (others.index(member) - spread) % len(others)
        turn_s = TURN * timeout_s
        return cls(FIRST_TURN * timeout_s + place * turn_s, len(order) * turn_s)
