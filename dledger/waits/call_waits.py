"""Waits of the calls of a node: for an append, a read, a snapshot, a transfer of leadership.

Appends and reads wait without an event each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import outcome
import trio

from dledger.core.handover import LeaderTransfer
from dledger.core.member_state import Role
from dledger.core.replica import Replica
from dledger.entry import Body
from dledger.errors import DLedgerError, TransferFailed
from dledger.patient_limit import patient_limit
from dledger.store.snapshot_folder import Snapshot
from dledger.waits.pending_appends import Appended, Done, Outcome
from dledger.waits.pending_reads import PendingReads, ReadOutcome
from dledger.waits.progress import Progress

# After the old leader stepped down, the outcome counts as unknown if no member leads for this many
# election timeouts: the target's election takes a round trip, a failed one up to two timeouts.
WAIT_TIMEOUTS = 4.0


async def wait_appended(
    submit: Callable[[Sequence[Body], Done, bool], None], bodies: Sequence[Body]
) -> list[Appended]:
    """Submit an append, and wait for its outcome; cancelling gives up only the wait.

    Raises what `submit` raises, and the error of an append that was admitted.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    if not bodies:
        return []
    waiter: trio.lowlevel.Task | None = None
    early: list[Outcome] = []

    def done(result: Outcome) -> None:
        if waiter is not None:
            trio.lowlevel.reschedule(waiter, outcome.Value(result))
        else:
            early.append(result)  # the caller does not wait yet, or no longer

    def abandon(_: object) -> trio.lowlevel.Abort:
        nonlocal waiter
        waiter = None
        return trio.lowlevel.Abort.SUCCEEDED

    submit(bodies, done, True)
    if early:
        await trio.lowlevel.cancel_shielded_checkpoint()
        result = early[0]
    else:
        waiter = trio.lowlevel.current_task()
        result = await trio.lowlevel.wait_task_rescheduled(abandon)
    if isinstance(result, DLedgerError):
        raise result
    return result


async def wait_read(reads: PendingReads) -> int:
    """Begin a read; return the index that it must see, once that entry is applied here.

    Raises ReadUnavailable, NodeClosing.
    """
    task = trio.lowlevel.current_task()
    ticket = reads.begin(lambda result: trio.lowlevel.reschedule(task, outcome.Value(result)))

    def abandon(_: object) -> trio.lowlevel.Abort:
        reads.give_up(ticket)
        return trio.lowlevel.Abort.SUCCEEDED

    result: ReadOutcome = await trio.lowlevel.wait_task_rescheduled(abandon)
    if isinstance(result, DLedgerError):
        raise result
    return result


async def wait_snapshot(
    ask: Callable[[Callable[[Snapshot | DLedgerError], None]], None],
) -> Snapshot:
    """Request a snapshot and wait for it; cancelling gives up only the wait.

    Raises what `ask` raises, and the error that answers the request.
    """
    answered, answers = trio.Event(), list[Snapshot | DLedgerError]()

    def done(answer: Snapshot | DLedgerError) -> None:
        answers.append(answer)
        answered.set()

    ask(done)
    await answered.wait()
    (answer,) = answers
    if isinstance(answer, Snapshot):
        return answer
    raise answer


async def wait_transferred(replica: Replica, transfer: LeaderTransfer, moved: Progress) -> str:
    """Wait for the new leader, and return it. `moved` advances when the role changes.

    Raises TransferFailed, NodeClosing.
    """
    state = replica.state
    term = state.term
    with patient_limit(WAIT_TIMEOUTS * replica.config.election_timeout_s):
        while state.term == term and state.role is Role.LEADER:
            if replica.handover.transfer is not transfer:
                raise TransferFailed(transfer.target, transfer.end or "it was given up")
            await moved.wait()
        while state.leader is None:
            await moved.wait()
        if state.leader == transfer.target:
            return transfer.target
        raise TransferFailed(transfer.target, f"{state.leader} leads now")
    raise TransferFailed(transfer.target, "no member leads yet")
