"""Waits for a requested snapshot."""

from __future__ import annotations

from collections.abc import Callable

import trio

from dledger.errors import DLedgerError
from dledger.store.snapshot_folder import Snapshot

Answer = Snapshot | DLedgerError


async def wait_snapshot(ask: Callable[[Callable[[Answer], None]], None]) -> Snapshot:
    """Request a snapshot and wait for it. Cancelling gives up only the wait.

    Raises what `ask` raises, and the error with which the request is answered.
    """
    answered, answers = trio.Event(), list[Answer]()

    def done(answer: Answer) -> None:
        answers.append(answer)
        answered.set()

    ask(done)
    await answered.wait()
    (answer,) = answers
    if isinstance(answer, Snapshot):
        return answer
    raise answer
