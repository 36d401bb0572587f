"""The loop behind the calls of programs that do not use trio."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

from dledger.loop_thread import LoopThread
from dledger_mq.errors import CallMisplaced, ClientClosed, ClosedDuringCall

Opened = TypeVar("Opened")


def loop_for(
    make: Callable[[], AbstractAsyncContextManager[Opened]], what: str
) -> LoopThread[Opened]:
    """A thread that keeps what `make` gives open in a trio loop.

    Args:
        make: called in the thread.
        what: "producer" or "consumer", for errors and the thread's name.
    """
    return LoopThread(
        make,
        f"dledger-mq {what}",
        closed=partial(ClientClosed, what),
        cut_off=ClosedDuringCall,
        misplaced=CallMisplaced,
    )
