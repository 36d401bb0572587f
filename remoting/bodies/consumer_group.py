"""Bodies by which the members of a consumer group find one another and lock queues (38, 41, 42)."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Final

from remoting.bodies.json_object import JsonObject
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.pieces import last_of, pieces
from remoting.wire.loose_json import compact_json

# The most queues of one request to lock or unlock: all queues of ten topics that have as many as a
# topic may have. The body's bytes leave 100 to each.
MAX_LOCKED_QUEUES: Final = 10_240
MAX_QUEUE_LOCK_BYTES: Final = 1024 * 1024


def encode_consumer_list(client_ids: Iterable[str]) -> bytes:
    """The body of the reply to 38: the ids of a group's members."""
    return compact_json({"consumerIdList": list(client_ids)}).encode()


def decode_consumer_list(body: bytes) -> list[str]:
    """Read the ids of a group's members.

    Raises:
        BodyMalformed: it is no such body.
    """
    return JsonObject.parse("consumer list", body).texts("consumerIdList")


@dataclass(slots=True)
class QueueLock:
    """A member's request to lock (41) or unlock (42) queues.

    Attributes:
        group: the consumer group.
        client_id: the member.
        queues: what it asks for; broker names are echoed exactly as given.
        only_this_broker: do not ask the broker's slaves.
    """

    group: str
    client_id: str
    queues: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool = False


def encode_queue_lock(lock: QueueLock) -> bytes:
    """The body of a lock or unlock request."""
    return compact_json(
        {
            "clientId": lock.client_id,
            "consumerGroup": lock.group,
            "mqSet": [queue.to_json() for queue in lock.queues],
            "onlyThisBroker": lock.only_this_broker,
        }
    ).encode()


def decode_queue_lock(body: bytes) -> QueueLock:
    """Read the body of a lock or unlock request.

    Raises:
        BodyMalformed: it is no such body, or too long.
    """
    return last_of(decode_queue_lock_in_steps(body))


def decode_queue_lock_in_steps(body: bytes) -> Generator[None, None, QueueLock]:
    """As `decode_queue_lock`."""
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
    """The body of the reply to a lock request: the queues the member owns now."""
    return encode_locked_rows(map(locked_row, queues))


def locked_row(queue: MessageQueue) -> str:
    """One queue in the reply to a lock request."""
    return compact_json(queue.to_json())


def encode_locked_rows(rows: Iterable[str]) -> bytes:
    """As `encode_locked_queues`, of rows by `locked_row`."""
    return f'{{"lockOKMQSet":[{",".join(rows)}]}}'.encode()


def decode_locked_queues(body: bytes) -> list[MessageQueue]:
    """Read the queues a member owns now.

    Raises:
        BodyMalformed: it is no such body.
    """
    value = JsonObject.parse("locked queues", body)
    return [MessageQueue.from_json(queue) for queue in value.objects("lockOKMQSet")]
