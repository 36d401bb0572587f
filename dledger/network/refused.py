"""What the end of a process looks like to somebody who dials it."""

from __future__ import annotations


def nobody_listens(error: BaseException) -> bool:
    """Whether a connection was not made because the machine itself said that nobody listens there.

    A machine that is down or cut off says nothing. Of several addresses of one name all must have
    been refused.
    """
    cause = error.__cause__
    if isinstance(error, OSError) and isinstance(cause, BaseExceptionGroup):
        return all(isinstance(each, ConnectionRefusedError) for each in cause.exceptions)
    return isinstance(error, ConnectionRefusedError)
