"""What is left of a turn for news after which there is nothing to say.

A process with a hundred groups sends and receives thousands of heartbeats a second, and a whole
turn for each would be most of what an idle process does. And who waits for one append waits for
every turn that is taken for it: a leader took four, where the first says all that there is to say.

What is done here is what a turn would do, and no more may be left out: where anything might have
to be said, these refuse, and it takes the usual way through `Replica.tick` and `Replica.receive`.
"""

from __future__ import annotations

from dledger.core.member_state import Role
from dledger.core.messages import Heartbeat, HeartbeatResponse, Phase, PushResponse
from dledger.core.replica import Replica

_NEVER = float("inf")


def beat_again(replica: Replica, now: float) -> Heartbeat | None:
    """The heartbeat that is due, of a leader with nothing else to do; None: take a turn.

    Everybody has the whole log, and has answered within half an election timeout, which is more
    than the check of the quorum asks for. The caller takes a turn now and then all the same, for
    what time alone changes.
    """
    state, reads, config = replica.state, replica.reads, replica.config
    last_index = replica.view.last_index
    if (
        reads is None
        or reads.waits
        or replica.lease is not None
        or replica.handover.transfer is not None
        or replica.followers.changing
        or not state.committed == state.durable == last_index
        or now < replica.heartbeat_at
    ):
        return None
    heard_at = now
    for dispatcher in replica.dispatchers.values():
        if (
            dispatcher.next_index <= last_index
            or dispatcher.next_deadline(state.committed) != _NEVER
        ):
            return None
        heard_at = min(heard_at, dispatcher.last_answer_at)
    if now - heard_at >= config.election_timeout_s / 2:
        return None
    replica.freshness.heard(state.committed, state.term, state.applied, heard_at)
    replica.heartbeat_at = config.next_heartbeat_at(now)
    return Heartbeat(state.term, state.committed, reads.next_round())


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
        or not state.proven
        or not replica.change_is_durable
        or state.committed < beat.committed
    ):
        return None
    replica.elector.heard_leader(now)
    replica.freshness.heard(beat.committed, state.term, state.applied, now)
    return HeartbeatResponse(state.term, beat.round, replica.elector.promised_ms)


def answered_again(replica: Replica, sender: str, answer: HeartbeatResponse, now: float) -> bool:
    """Note the answer of a follower; False: take a turn, for something may wait for it."""
    reads, dispatcher = replica.reads, replica.dispatchers.get(sender)
    if (
        reads is None
        or dispatcher is None
        or not dispatcher.proven
        or reads.waits
        or replica.lease is not None
        or answer.term != replica.state.term
    ):
        return False
    dispatcher.last_answer_at = now
    reads.confirm(sender, answer.round)
    return True


def acknowledged(replica: Replica, sender: str, answer: PushResponse, now: float) -> bool:
    """Take an acknowledgement after which there is nothing to say; False: take a turn.

    The peer was sent everything, so its answer makes room for nothing. It may commit entries, but
    no change of the group. That they are committed is told with the next push, or when it is time.
    """
    state, dispatcher = replica.state, replica.dispatchers.get(sender)
    if (
        replica.acks is None
        or dispatcher is None
        or answer.term != state.term
        or not (answer.ok and answer.proven and dispatcher.proven)
        or dispatcher.phase is not Phase.COMMIT
        or dispatcher.next_index <= replica.view.last_index
        or replica.has_open_reads
        or replica.handover.transfer is not None
        or replica.followers.changing
        or state.membership.uncommitted
    ):
        return False
    replica.receive(sender, answer, now)
    return True


def persisted_again(replica: Replica, index: int, epoch: int, now: float) -> bool:
    """Note that the log is durable up to `index`; whether that is all: there is nothing to send
    for it, and nothing to apply.
    """
    replica.persisted(index, epoch, None, now)
    return not replica.has_outgoing and replica.appliable <= replica.state.applied
