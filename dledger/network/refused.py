"""Recognizes a dial error that shows that the process has ended."""

from __future__ import annotations


def no_process_listens(error: BaseException) -> bool:
    """Whether the machine itself refused the connection because no process listens there.

    A machine that is down or cut off does not answer. If a name has several addresses, all of them
    must have refused.
    """
    cause = error.__cause__
    if isinstance(error, OSError) and isinstance(cause, BaseExceptionGroup):
        return all(isinstance(each, ConnectionRefusedError) for each in cause.exceptions)
    return isinstance(error, ConnectionRefusedError)
