"""A message queue's name, and JSON maps that have message queues as keys."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from remoting.bodies.json_object import JsonObject
from remoting.wire.loose_json import LARGE, SMALL, JsonValue, compact_json, parse_json


@dataclass(frozen=True, order=True, slots=True)
class MessageQueue:
    """One queue of a topic on one broker. The order is the one clients sort by to share queues."""

    topic: str
    broker_name: str
    queue_id: int

    def to_json(self) -> dict[str, JsonValue]:
        """As it stands in JSON bodies."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    @classmethod
    def from_json(cls, value: JsonObject) -> "MessageQueue":
        """Read it from a JSON body.

        Raises:
            BodyMalformed: a member is missing or of a wrong type.
        """
        return cls(value.text("topic"), value.text("brokerName"), value.int32("queueId"))


def queue_keyed_json(pairs: Iterable[tuple[MessageQueue, object]]) -> str:
    """A map keyed by message queue, as Java tools read it: the objects themselves are the keys.

    That is not standard JSON; it is what fastjson writes and the only form it reads back. Used by
    the replies of 202, 208, 222 and 223 and by the request 220.
    """
    members = [f"{compact_json(queue.to_json())}:{compact_json(value)}" for queue, value in pairs]
    return "{" + ",".join(members) + "}"


def encode_queue_keyed(
    name: str,
    pairs: Iterable[tuple[MessageQueue, object]],
    others: Mapping[str, object] | None = None,
) -> bytes:
    """A body whose member `name` is a map keyed by message queue.

    Args:
        name: such as "offsetTable".
        pairs: the map.
        others: further members.
    """
    members = [f"{compact_json(name)}:{queue_keyed_json(pairs)}"]
    members += [
        f"{compact_json(key)}:{compact_json(value)}" for key, value in (others or {}).items()
    ]
    return ("{" + ",".join(members) + "}").encode()


def decode_queue_keyed(body_name: str, name: str, body: bytes) -> dict[MessageQueue, JsonValue]:
    """Read the member `name`, a map keyed by message queue, of a body.

    Raises:
        BodyMalformed: the body is no JSON object, or a key is no message queue.
    """
    members = JsonObject.parse(body_name, body, size=LARGE).object(name).members
    return {_queue_of(body_name, key): value for key, value in members.items()}


def _queue_of(body_name: str, key: str) -> MessageQueue:
    """A message queue from the JSON text that stands for it as a key."""
    return MessageQueue.from_json(
        JsonObject(body_name, parse_json(body_name, key.encode(), size=SMALL))
    )
