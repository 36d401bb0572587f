"""Bodies by which the members of a consumer group find one another and lock queues (38, 41, 42)."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Final

from remoting.bodies.json_object import JsonObject
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.pieces import last_of, pieces
from remoting.wire.loose_json import compact_json

# The most queues of one request to lock or unlock: those of ten topics of the largest size. The
# limit of bytes leaves 100 to each queue.
MAX_LOCKED_QUEUES: Final = 10_240
MAX_QUEUE_LOCK_BYTES: Final = 1024 * 1024


def encode_consumer_list(client_ids: Iterable[str]) -> bytes:
    """Encode the reply to 38: the ids of a group's members."""
    return compact_json({"consumerIdList": list(client_ids)}).encode()


def decode_consumer_list(body: bytes) -> list[str]:
    """Decode the ids of a group's members. Raises BodyMalformed."""
    return JsonObject.parse("consumer list", body).texts("consumerIdList")


@dataclass(slots=True)
class QueueLock:
    """A member's request to lock (41) or unlock (42) queues.

    Attributes:
        group: the consumer group.
        client_id: the member.
        queues: the queues; broker names are echoed exactly as given.
        only_this_broker: do not ask the broker's slaves.
    """

    group: str
    client_id: str
    queues: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool = False


def encode_queue_lock(lock: QueueLock) -> bytes:
    return compact_json(
        {
            "clientId": lock.client_id,
            "consumerGroup": lock.group,
            "mqSet": [queue.to_json() for queue in lock.queues],
            "onlyThisBroker": lock.only_this_broker,
        }
    ).encode()


def decode_queue_lock(body: bytes) -> QueueLock:
    """Decode a lock or unlock request. Raises BodyMalformed, also for a body that is too long."""
    return last_of(decode_queue_lock_in_steps(body))


def decode_queue_lock_in_steps(body: bytes) -> Generator[None, None, QueueLock]:
    """Decode a lock or unlock request in steps. Raises BodyMalformed."""
    value = JsonObject.parse("queue lock", body, MAX_QUEUE_LOCK_BYTES)
    lock = QueueLock(
        value.name("consumerGroup"),
        value.name("clientId"),
        only_this_broker=value.boolean("onlyThisBroker"),
    )
    yield
    for piece in pieces(value.objects("mqSet", MAX_LOCKED_QUEUES)):
        lock.queues += map(MessageQueue.from_json, piece)
        yield
    return lock


def encode_locked_queues(queues: Iterable[MessageQueue]) -> bytes:
    """Encode the reply to a lock request: the queues that the member owns now."""
    return encode_locked_rows(map(locked_row, queues))


def locked_row(queue: MessageQueue) -> str:
    """Encode one queue of the reply to a lock request."""
    return compact_json(queue.to_json())


def encode_locked_rows(rows: Iterable[str]) -> bytes:
    """Encode the reply to a lock request from rows by `locked_row`."""
    return f'{{"lockOKMQSet":[{",".join(rows)}]}}'.encode()


def decode_locked_queues(body: bytes) -> list[MessageQueue]:
    """Decode the queues that a member owns now. Raises BodyMalformed."""
    value = JsonObject.parse("locked queues", body)
    return [MessageQueue.from_json(queue) for queue in value.objects("lockOKMQSet")]
