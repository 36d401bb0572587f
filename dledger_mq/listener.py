"""The user's function that consumes messages: its type, and checks of it and of its results."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from dledger_mq.errors import InvalidListener
from dledger_mq.message import ConsumeResult
from dledger_mq.received_message import ReceivedMessage

# Longer calls are logged by default: most take milliseconds, and calls that wait for other services
# time out at about this time.
SLOW_CALL_S: Final = 10.0

# Gets at least one message, of one queue. None means SUCCESS, an error means RETRY. A function that
# takes any sequence is a listener, too.
Listener: TypeAlias = Callable[[list[ReceivedMessage]], Awaitable[ConsumeResult | None]]


def check_listener(listener: object) -> None:
    """Check that a listener can be awaited. Raises InvalidListener.

    Accepts a coroutine function, also as a method, a `functools.partial`, an object whose class
    defines ``async def __call__``, or wrapped by a decorator that uses `functools.wraps`. A lambda
    is accepted, too, since only a call shows whether it returns an awaitable.
    """
    if not callable(listener):
        raise InvalidListener(f"{listener!r:.80} cannot be called")
    function: object = listener
    while isinstance(function, functools.partial):
        function = function.func
    if not (inspect.isroutine(function) or inspect.iscoroutinefunction(function)):
        function = type(function).__call__  # an object, or a class
    function = inspect.unwrap(function)
    if getattr(function, "__name__", "") != "<lambda>" and not inspect.iscoroutinefunction(
        function
    ):
        name = getattr(listener, "__qualname__", repr(listener))
        raise InvalidListener(f"{name:.80} is no coroutine function")


def says_consumed(result: object) -> bool:
    """Return whether a listener's result means that it consumed the messages.

    Raises:
        InvalidListener: it is neither None nor a `ConsumeResult`.
    """
    if result is None or result is ConsumeResult.SUCCESS:
        return True
    if result is ConsumeResult.RETRY:
        return False
    raise InvalidListener(f"it returned {result!r:.80}")
