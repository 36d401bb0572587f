"""A message queue's name, and JSON maps with message queues as keys."""

from collections.abc import Iterable
from dataclasses import dataclass

from remoting.bodies.json_object import JsonObject
from remoting.wire.loose_json import LARGE, SMALL, JsonValue, compact_json, parse_json


@dataclass(frozen=True, order=True, slots=True)
class MessageQueue:
    """One queue of a topic on one broker. The order is that by which clients share queues."""

    topic: str
    broker_name: str
    queue_id: int

    def to_json(self) -> dict[str, JsonValue]:
        """Return the queue as it is in JSON bodies."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    @classmethod
    def from_json(cls, value: JsonObject) -> "MessageQueue":
        """Decode it. Raises BodyMalformed."""
        return cls(value.text("topic"), value.text("brokerName"), value.int32("queueId"))


def queue_keyed_json(pairs: Iterable[tuple[MessageQueue, object]]) -> str:
    """Encode a map keyed by message queues, for which Java tools take JSON objects as keys.

    That is not standard JSON; fastjson writes it and reads back no other form. The replies of 202,
    208, 222 and 223 and the request 220 use it.
    """
    return "{" + ",".join(map(queue_keyed_row, pairs)) + "}"


def queue_keyed_row(pair: tuple[MessageQueue, object]) -> str:
    """Encode one member of `queue_keyed_json`; members are joined by commas."""
    queue, value = pair
    return f"{compact_json(queue.to_json())}:{compact_json(value)}"


def encode_queue_keyed(name: str, pairs: Iterable[tuple[MessageQueue, object]]) -> bytes:
    """Encode a body whose member `name`, as "offsetTable", is a map keyed by message queues."""
    return f"{{{compact_json(name)}:{queue_keyed_json(pairs)}}}".encode()


def decode_queue_keyed(body_name: str, name: str, body: bytes) -> dict[MessageQueue, JsonValue]:
    """Decode the member `name` of a body, a map keyed by message queues. Raises BodyMalformed."""
    members = JsonObject.parse(body_name, body, size=LARGE).object(name).members
    return {_queue_of(body_name, key): value for key, value in members.items()}


def _queue_of(body_name: str, key: str) -> MessageQueue:
    return MessageQueue.from_json(
        JsonObject(body_name, parse_json(body_name, key.encode(), size=SMALL))
    )
