"""The attributes that RocketMQ 5 gives topics: each is obeyed here, or refused by its name.

A topic's message type is kept for clients that ask for it, and brokers take every message: as in
RocketMQ, where only the proxy compares the two. Source: RocketMQ's TopicAttributes.
"""

from collections.abc import Mapping
from typing import Final

from broker.errors import RequestRefused

_MESSAGE_TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED")

# What each attribute may be, and why it may not be what else RocketMQ knows.
_LEGAL: Final = {
    "message.type": (_MESSAGE_TYPES, "there are no other types"),
    # With BatchCQ RocketMQ has a unit for a batch instead of one for each message, for producers
    # whose batches stay together. Offsets and pulls are the same, so here it has no effect.
    "queue.type": (("SimpleCQ", "BatchCQ"), "there are no other queues"),
    "cleanup.policy": (("DELETE",), "messages are dropped by their age only"),
    "reserve.time": (("-1",), "all topics are kept for as long as the broker says"),
}


def check_attributes(topic: str, attributes: Mapping[str, str]) -> None:
    """Raises RequestRefused (29) for an attribute that is not obeyed here."""
    for name, value in attributes.items():
        if name not in _LEGAL:
            raise RequestRefused.invalid(
                f"topic {topic}: unsupported key {name!r:.80}: give " + ", ".join(_LEGAL)
            )
        values, why = _LEGAL[name]
        if value not in values:
            raise RequestRefused.invalid(
                f"topic {topic}: {name}={value:.80} is not supported, {why}: give "
                + " or ".join(values)
            )
