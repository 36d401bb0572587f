"""The user's function that consumes messages: which ones are accepted, and what they answer."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from dledger_mq.errors import InvalidListener
from dledger_mq.message import ConsumeResult
from dledger_mq.received_message import ReceivedMessage

# After so long a call is told, unless the options say otherwise: most take milliseconds, and what
# waits for other services gives up about then.
SLOW_CALL_S: Final = 10.0

# Gets at least one message, of one queue. None is SUCCESS; what it raises is RETRY. A function for
# any sequence is one, too.
Listener: TypeAlias = Callable[[list[ReceivedMessage]], Awaitable[ConsumeResult | None]]


def check_listener(listener: object) -> None:
    """Check that a listener can be awaited.

    Accepts a coroutine function, also as a method, a `functools.partial`, an object whose class
    defines ``async def __call__``, or wrapped by a decorator that uses `functools.wraps`. A lambda
    is accepted, too, since only a call shows whether it returns an awaitable.

    Raises:
        InvalidListener: it is none of these.
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
    """Whether a listener's answer says that it consumed the messages.

    Raises:
        InvalidListener: it is neither None nor a `ConsumeResult`.
    """
    if result is None or result is ConsumeResult.SUCCESS:
        return True
    if result is ConsumeResult.RETRY:
        return False
    raise InvalidListener(f"it returned {result!r:.80}")
