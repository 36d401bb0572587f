"""Receipt handles, by which a consumer acknowledges a message.

Eight words, as in RocketMQ: offset of the check-point (here that of the first message of the pop),
time of the pop, invisible time, queue of check-points, kind of topic, broker, queue, offset.
"""

from typing import Final

from broker.errors import RequestRefused
from remoting.wire.field_values import read_natural

# Pops in order have this number instead of a queue of check-points; clients read it.
ORDERED_QUEUE: Final = 999
_QUEUE: Final = 0

# Messages of the topic itself; RocketMQ's copies in retry topics have others.
TOPIC_KIND: Final = "0"

_POPPED_AT: Final = 1
_QUEUE_AT: Final = 3
_FEWEST_WORDS: Final = 7
_MAX_CHARACTERS: Final = 1024


def handle(
    first: int,
    popped_ms: int,
    invisible_ms: int,
    is_ordered: bool,
    broker: str,
    queue_id: int,
    offset: int,
) -> str:
    return (
        f"{first} {popped_ms} {invisible_ms} {check_point_queue(is_ordered)} {TOPIC_KIND} "
        f"{broker} {queue_id} {offset}"
    )


def check_point_queue(is_ordered: bool) -> int:
    """Return the word that is the queue of the check-point in RocketMQ."""
    return ORDERED_QUEUE if is_ordered else _QUEUE


def is_of_order(text: str) -> bool:
    """Return whether a handle, which `popped_ms_of` has read, is of a pop in order."""
    return text.split(" ")[_QUEUE_AT] == str(ORDERED_QUEUE)


def popped_ms_of(text: str) -> int:
    """Return when the message of a handle was given. Raises RequestRefused (29): an
    invalid handle.
    """
    words = text.split(" ") if len(text) <= _MAX_CHARACTERS else []
    popped = read_natural(words[_POPPED_AT]) if len(words) >= _FEWEST_WORDS else None
    if popped is None:
        raise RequestRefused.invalid(f"{text!r:.100} is no receipt handle: pop anew")
    return popped
