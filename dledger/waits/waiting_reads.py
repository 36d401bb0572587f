"""Waits for a linearizable read."""

from __future__ import annotations

import outcome
import trio

from dledger.errors import DLedgerError
from dledger.waits.pending_reads import PendingReads, ReadOutcome


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
