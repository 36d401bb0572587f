"""A task waits for what it appended, without an event of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import outcome
import trio

from dledger.core.pending import Appended, Done, Outcome
from dledger.entry import Body
from dledger.errors import DLedgerError


async def wait_appended(
    submit: Callable[[Sequence[Body], Done], None], bodies: Sequence[Body]
) -> list[Appended]:
    """Submit, and wait for what became of it; cancelling gives up the wait alone.

    Raises what `submit` raises, and the error that came of an admitted entry.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    if not bodies:
        return []
    waiter: trio.lowlevel.Task | None = trio.lowlevel.current_task()

    def done(result: Outcome) -> None:
        if waiter is not None:
            trio.lowlevel.reschedule(waiter, outcome.Value(result))

    def abandon(_: object) -> trio.lowlevel.Abort:
        nonlocal waiter
        waiter = None
        return trio.lowlevel.Abort.SUCCEEDED

    submit(bodies, done)
    result: Outcome = await trio.lowlevel.wait_task_rescheduled(abandon)
    if isinstance(result, DLedgerError):
        raise result
    return result
