"""Checks arguments that users give: their kinds, and the ranges of numbers."""

import sys
from math import inf
from numbers import Integral, Real
from typing import Final

from dledger_mq.errors import InvalidArgument, InvalidOptions
from remoting.bodies.message_queue import MessageQueue

# The numbers of the wire: offsets and times have 64 bits, counts 32.
INT64: Final = (-(1 << 63), (1 << 63) - 1)
MOST_INT32: Final = (1 << 31) - 1

LARGEST: Final = int(sys.float_info.max)


def check_kind(
    of: str, name: str, value: object, kinds: type | tuple[type, ...], wanted: str
) -> None:
    """Check an argument by its class; `wanted` says what to give. Raises InvalidArgument."""
    if not isinstance(value, kinds):
        raise InvalidArgument(of, name, kind_of(value), wanted)


def check_callable(of: str, name: str, value: object, wanted: str) -> None:
    """Raises InvalidArgument."""
    if not callable(value):
        raise InvalidArgument(of, name, kind_of(value), wanted)


def check_queue(of: str, queue: object) -> None:
    """Check a queue and its fields. Raises InvalidArgument, InvalidOptions."""
    if not isinstance(queue, MessageQueue):
        wanted = "a MessageQueue, such as a topic's `queues`"
        raise InvalidArgument(of, "queue", kind_of(queue), wanted)
    check_kind(of, "the queue's topic", queue.topic, str, "a topic's name")
    check_kind(of, "the queue's broker_name", queue.broker_name, str, "the name of a group")
    check_number(of, "the queue's queue_id", queue.queue_id, 0, MOST_INT32, whole=True)


def kind_of(value: object) -> str:
    """Return the name of a value's class, for an error."""
    return "None" if value is None else type(value).__name__


def check_number(
    options: str, name: str, value: object, least: float, most: float, *, whole: bool = False
) -> None:
    """Check an option by its type and range. Raises InvalidOptions, also for "not a number"."""
    if not is_number_in(value, least, most, whole=whole):
        raise InvalidOptions(name, value, least, most, options)


def is_number_in(value: object, least: float, most: float, *, whole: bool = False) -> bool:
    """Return whether a value is a number, and in this range."""
    # The numbers of other libraries are registered as these kinds.
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        return False
    if isinstance(value, Integral) and not whole and abs(int(value)) > LARGEST:
        return False  # trio's clock counts in floats
    return bool(least <= value <= most)  # type: ignore[operator]


def check_limit_s(options: str, name: str, value: object) -> None:
    """Check a time limit; one below zero is over at once. Raises InvalidOptions."""
    if not is_number_in(value, -inf, inf):
        raise InvalidOptions(name, value, 0, inf, options)
