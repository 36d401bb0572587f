"""Heartbeats that say nothing new, and their answers: what is left of a turn for them.

A process with many groups receives thousands a second, and a whole turn for each would be most of
what an idle process does. What is done here is what a turn would do, and no more may be left out:
where anything but the time of the last sign of life would change, these refuse, and the message
has to take the usual way through `Replica.receive`.
"""

from __future__ import annotations

from dledger.core.member_state import Role
from dledger.core.replica import Replica
from dledger.messages import Heartbeat, HeartbeatResponse


def hear_again(
    replica: Replica, sender: str, beat: Heartbeat, now: float
) -> HeartbeatResponse | None:
    """The answer to a heartbeat of the leader that is followed already; None: take a turn.

    The caller sees to it that the member's term and vote are durable: the answer promises them.
    """
    state = replica.state
    if (
        state.leader != sender
        or state.term != beat.term
        or state.role is not Role.FOLLOWER
        or state.committed < beat.committed
    ):
        return None
    replica.elector.heard_leader(now)
    replica.freshness.heard(beat.committed, state.term, state.applied, now)
    return HeartbeatResponse(state.term, beat.round, replica.elector.promised_ms)


def answered_again(replica: Replica, sender: str, answer: HeartbeatResponse, now: float) -> bool:
    """Note the answer of a follower; False: take a turn, because a read or a lease waits for it."""
    reads, dispatcher = replica.reads, replica.dispatchers.get(sender)
    if (
        reads is None
        or dispatcher is None
        or reads.waits
        or replica.lease is not None
        or answer.term != replica.state.term
    ):
        return False
    dispatcher.last_answer_at = now
    reads.confirm(sender, answer.round)
    return True
