"""Waits for the outcome of an append, without an event for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import outcome
import trio

from dledger.entry import Body
from dledger.errors import DLedgerError
from dledger.waits.pending_appends import Appended, Done, Outcome


async def wait_appended(
    submit: Callable[[Sequence[Body], Done, bool], None], bodies: Sequence[Body]
) -> list[Appended]:
    """Submit an append, and wait for its outcome; cancelling gives up only the wait.

    Raises what `submit` raises, and the error of an admitted entry.
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
