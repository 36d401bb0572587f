"""Bodies about the queues that brokers assign (400), and how groups read topics (401, 402)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from remoting.bodies.json_object import JsonObject
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.loose_json import LARGE, compact_json

PULL: Final = "PULL"
POP: Final = "POP"


@dataclass(frozen=True, slots=True, order=True)
class Assigned:
    """A queue that a consumer is assigned.

    Attributes:
        queue: the queue; the id -1 stands for any queue of its broker.
        mode: PULL or POP.
    """

    queue: MessageQueue
    mode: str = PULL


@dataclass(frozen=True, slots=True, order=True)
class RequestMode:
    """How the members of a group read a topic.

    Attributes:
        topic: the topic.
        group: the consumer group.
        mode: PULL or POP.
        shares: the number of other members with which a popping member shares its queues; 0 or less
            means all of them.
    """

    topic: str
    group: str
    mode: str
    shares: int


def encode_question(group: str, topic: str, client_id: str) -> bytes:
    """Encode a consumer's question for its queues (400)."""
    return compact_json(
        {
            "clientId": client_id,
            "consumerGroup": group,
            "messageModel": "CLUSTERING",
            "strategyName": "AVG",
            "topic": topic,
        }
    ).encode()


def encode_assigned(assigned: Iterable[Assigned] | None) -> bytes:
    """Encode the answer; None if the broker does not know it now."""
    return encode_assigned_rows(None if assigned is None else map(assigned_row, assigned))


def assigned_row(assigned: Assigned) -> str:
    """Encode one queue of the answer."""
    return compact_json({"messageQueue": assigned.queue.to_json(), "mode": assigned.mode})


def encode_assigned_rows(rows: Iterable[str] | None) -> bytes:
    """Encode the answer from rows by `assigned_row`; None if the broker does not know it now."""
    told = "null" if rows is None else f"[{','.join(rows)}]"
    return f'{{"messageQueueAssignments":{told}}}'.encode()


def decode_assigned(body: bytes) -> list[Assigned] | None:
    """Decode the answer; None if the broker does not know it now. Raises BodyMalformed."""
    parsed = JsonObject.parse("assigned queues", body, size=LARGE)
    if parsed.members.get("messageQueueAssignments") is None:
        return None
    return [
        Assigned(MessageQueue.from_json(one.object("messageQueue")), one.text("mode", PULL))
        for one in parsed.objects("messageQueueAssignments")
    ]


def encode_mode(mode: RequestMode) -> bytes:
    """Encode how a group reads a topic (401)."""
    return compact_json(
        {
            "consumerGroup": mode.group,
            "mode": mode.mode,
            "popShareQueueNum": mode.shares,
            "topic": mode.topic,
        }
    ).encode()


def decode_modes(body: bytes) -> list[RequestMode]:
    """Decode all modes that were set (402), in the order of topics and groups. Raises
    BodyMalformed.
    """
    parsed = JsonObject.parse("request modes", body, size=LARGE).object("messageRequestModeMap")
    return sorted(
        RequestMode(topic, group, mode.text("mode", PULL), mode.integer("popShareQueueNum", 0))
        for topic, groups in parsed.named_objects().items()
        for group, mode in groups.named_objects().items()
    )
