"""The attributes that RocketMQ 5 gives topics: each is obeyed here, or refused by its name.

Source: RocketMQ's TopicAttributes. Its brokers keep all of them; that a message is of its topic's
type only its proxy checks.
"""

from collections.abc import Mapping
from typing import Final

from broker.errors import RequestRefused
from remoting.message.properties import (
    DELAY_TIME_LEVEL,
    SHARDING_KEY,
    START_DELIVER_TIME,
    TIMER_DELAY_MILLISECONDS,
    TIMER_DELAY_SECONDS,
    TIMER_DELIVER_MILLISECONDS,
    TRANSACTION_PREPARED,
    decode_properties,
)
from remoting.wire.codes import ResponseCode

MESSAGE_TYPE_ATTRIBUTE: Final = "message.type"

_NORMAL, _FIFO, _DELAY, _TRANSACTION = "NORMAL", "FIFO", "DELAY", "TRANSACTION"

# Which messages a topic of a type takes. Those of MIXED, UNSPECIFIED and no type take all. Clients
# that choose the queue themselves need no sharding key for messages in order.
_TAKEN: Final = {
    _NORMAL: (_NORMAL,),
    _FIFO: (_FIFO, _NORMAL),
    _DELAY: (_DELAY,),
    _TRANSACTION: (_TRANSACTION,),
}

# What each attribute may be, and why it may not be what else RocketMQ knows.
_LEGAL: Final = {
    MESSAGE_TYPE_ATTRIBUTE: ((*_TAKEN, "MIXED", "UNSPECIFIED"), "there are no other types"),
    "queue.type": (("SimpleCQ",), "each message has a unit of its own in its queue"),
    "cleanup.policy": (("DELETE",), "messages are dropped by their age only"),
    "reserve.time": (("-1",), "all topics are kept for as long as the broker says"),
}

_DELAYS: Final = (
    TIMER_DELAY_SECONDS,
    TIMER_DELAY_MILLISECONDS,
    TIMER_DELIVER_MILLISECONDS,
    START_DELIVER_TIME,
)


def check_attributes(topic: str, attributes: Mapping[str, str]) -> None:
    """Raises RequestRefused (29) for an attribute that is not obeyed here."""
    for name, value in attributes.items():
        if name not in _LEGAL:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"topic {topic}: unsupported key {name!r:.80}: give " + ", ".join(_LEGAL),
            )
        values, why = _LEGAL[name]
        if value not in values:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"topic {topic}: {name}={value:.80} is not supported, {why}: give "
                + " or ".join(values),
            )


def check_message_type(topic: str, attributes: Mapping[str, str], properties: bytes) -> None:
    """Raises RequestRefused (13) for a message whose type is not that of its topic.

    Args:
        topic: where it is sent to.
        attributes: of the topic.
        properties: of the message.
    """
    wanted = attributes.get(MESSAGE_TYPE_ATTRIBUTE, "")
    taken = _TAKEN.get(wanted)
    if taken is None:
        return
    found = _message_type(decode_properties(properties))
    if found not in taken:
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"TopicMessageType validate failed, the expected type of topic {topic} is {wanted}, "
            f"but actual type is {found}",
        )


def _message_type(pairs: Mapping[str, str]) -> str:
    if pairs.get(TRANSACTION_PREPARED) == "true":
        return _TRANSACTION
    if pairs.get(DELAY_TIME_LEVEL, "0") != "0" or any(pairs.get(name) for name in _DELAYS):
        return _DELAY
    return _FIFO if pairs.get(SHARDING_KEY) else _NORMAL
