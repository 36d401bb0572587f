"""The handle by which a sender recalls a delayed message.

RocketMQ 5's is base64 of "v1 topic broker time key", of which its clients read the broker. Ours has
the log position of the message after these words. A handle without it is accepted, too, because
clients can make one themselves.
"""

import base64
import binascii
from typing import NamedTuple

from remoting.wire.field_values import read_natural


class RecallHandle(NamedTuple):
    """The contents of a handle.

    Attributes:
        broker_name: the group of brokers that has the message.
        due_ms: when it is due, milliseconds since 1970.
        position: where its record began in the log when it was sent; None if the handle lacks it.
    """

    topic: str
    broker_name: str
    due_ms: int
    unique_key: str
    position: int | None


def recall_handle(topic: str, broker_name: str, due_ms: int, unique_key: str, position: int) -> str:
    words = f"v1 {topic} {broker_name} {due_ms} {unique_key} {position}"
    return base64.urlsafe_b64encode(words.encode("utf-8", "replace")).decode()


def read_recall_handle(text: str) -> RecallHandle | None:
    """Return the contents of a handle; None if the text is not one."""
    try:
        words = base64.b64decode(text.encode("ascii"), b"-_", validate=True).decode().split(" ")
        version, topic, broker_name, due_ms, *key = words
    except (ValueError, binascii.Error):
        return None
    due = read_natural(due_ms)
    position = read_natural(key.pop()) if len(key) > 1 else -1
    if version != "v1" or not "".join(key) or due is None or position is None:
        return None
    return RecallHandle(topic, broker_name, due, " ".join(key), position if position >= 0 else None)
