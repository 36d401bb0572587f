"""Restarts tasks of features that fail."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from broker.log.one_by_one import failure
from dledger import DLedgerError
from remoting.wire.errors import RemotingError

# A defect may be met again at once: no more than one line a second.
_AFTER_FAILURE_S: Final = 1.0


async def lasting(task: Callable[[], Awaitable[object]]) -> None:
    """Run a task until it returns. A defect, which a single message may trigger, is logged and the
    task runs again: it does not end the member.

    Raises DLedgerError, RemotingError, OSError: the member cannot serve without what failed.
    """
    while True:
        try:
            await task()
        except Exception as error:
            if _ends_member(error):
                raise
            failure("a task of the broker", error)
            await trio.sleep(_AFTER_FAILURE_S)
        else:
            return


def _ends_member(error: Exception) -> bool:
    if isinstance(error, ExceptionGroup):
        return any(isinstance(one, Exception) and _ends_member(one) for one in error.exceptions)
    return isinstance(error, DLedgerError | RemotingError | OSError)
