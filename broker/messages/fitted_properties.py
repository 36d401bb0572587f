"""Fits the properties of copies into records: a copy has more properties than its original.

A producer may fill all the bytes that a record has for properties, as with RocketMQ. There the
broker cannot store a copy of such a message: it is not retried, and never becomes a dead letter.
Here a copy omits the least important properties; its `ORIGIN_MESSAGE_ID` refers to the original.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

from remoting.message.properties import (
    CHECK_IMMUNITY_S,
    CLUSTER,
    CONSUME_START_TIME,
    CORRELATION_ID,
    DEAD_LETTER_ORIGIN_MESSAGE_ID,
    DEAD_LETTER_ORIGIN_TOPIC,
    DELAY_TIME_LEVEL,
    KEYS,
    MAX_OFFSET,
    MAX_PROPERTIES_BYTES,
    MAX_RECONSUME_TIMES,
    MESSAGE_REGION,
    MESSAGE_TYPE,
    MIN_OFFSET,
    ORIGIN_MESSAGE_ID,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RECONSUME_TIME,
    REPLY_TIME_TO_LIVE,
    REPLY_TO_CLIENT,
    RETRY_TOPIC,
    SHARDING_KEY,
    START_DELIVER_TIME,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_S,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRACE_SWITCH,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    WAIT_STORE_MESSAGE_OK,
    encode_properties,
    found_value,
)
from remoting.wire.field_values import read_natural

# Counts the properties that a copy omits.
LEFT_OUT: Final = "PROPERTIES_LEFT_OUT"

# A copy never needs these.
_DISPENSABLE: Final = (
    MESSAGE_REGION,
    TRACE_SWITCH,
    WAIT_STORE_MESSAGE_OK,
    CONSUME_START_TIME,
    MIN_OFFSET,
    MAX_OFFSET,
)

# Brokers and clients need these. Together they take a few thousand bytes, because a longer one than
# brokers write counts as the user's own.
_KEPT: Final = frozenset(
    name.encode()
    for name in (
        *(UNIQUE_KEY, TAGS, KEYS, SHARDING_KEY, CLUSTER),
        *(REAL_TOPIC, REAL_QUEUE_ID, RETRY_TOPIC, ORIGIN_MESSAGE_ID),
        *(DEAD_LETTER_ORIGIN_TOPIC, DEAD_LETTER_ORIGIN_MESSAGE_ID),
        *(RECONSUME_TIME, MAX_RECONSUME_TIMES, DELAY_TIME_LEVEL, TIMER_OUT_MS),
        *(TIMER_DELAY_S, TIMER_DELAY_MS, TIMER_DELIVER_MS),
        *(START_DELIVER_TIME, TRANSACTION_PREPARED, PRODUCER_GROUP, TRANSACTION_CHECK_TIMES),
        *(CHECK_IMMUNITY_S, CORRELATION_ID, REPLY_TO_CLIENT, REPLY_TIME_TO_LIVE),
        MESSAGE_TYPE,
    )
)
_LONGEST_KEPT: Final = 300

# For the key that a message without one is given, and for LEFT_OUT.
_ROOM: Final = 96


class Fitted(NamedTuple):
    """Properties that fit into a record.

    Attributes:
        run: the encoded properties.
        left_out: how many of the user's are omitted.
    """

    run: bytes
    left_out: int


def fitted(run: bytes, most: int = MAX_PROPERTIES_BYTES) -> Fitted:
    """Return the run, or the most important part of it.

    Of the user's own properties the shortest one that makes enough room is omitted, or else the
    longest ones.
    """
    if len(run) <= most:
        return Fitted(run, 0)
    pieces = [piece for piece in run.split(b"\x02") if piece]
    for word in _DISPENSABLE:
        if _size(pieces) <= most:
            break
        begin = word.encode() + b"\x01"
        pieces = [piece for piece in pieces if not piece.startswith(begin)]
    excess = _size(pieces) - most
    if excess <= 0:
        return Fitted(b"\x02".join([*pieces, b""]), 0)
    excess += _ROOM
    names = [piece.partition(b"\x01")[0] for piece in pieces]
    last = {name: at for at, name in enumerate(names)}
    others = sorted(
        (len(piece) + 1, at)
        for at, (name, piece) in enumerate(zip(names, pieces, strict=True))
        if name not in _KEPT or last[name] != at or len(piece) > _LONGEST_KEPT
    )
    gone: set[int] = set()
    while excess > 0 and others:
        size, at = others.pop(min(bisect_left(others, (excess, -1)), len(others) - 1))
        gone.add(at)
        excess -= size
    kept = [piece for at, piece in enumerate(pieces) if at not in gone]
    # A copy of a copy counts the omissions of both.
    before = read_natural(found_value(run, LEFT_OUT.encode()) or "") or 0
    omitted = len(gone) + min(before, MAX_PROPERTIES_BYTES)
    told = encode_properties({LEFT_OUT: str(omitted)})
    return Fitted(b"\x02".join([*kept, told]), len(gone))


def _size(pieces: list[bytes]) -> int:
    """Return the bytes of the pieces with their separators."""
    return sum(map(len, pieces)) + len(pieces)
