"""Reads a client's pop (200050), notification (200054) or peek (200052)."""

from typing import Final, NamedTuple

from broker.errors import RequestRefused
from broker.limits import MAX_HOLD_S
from broker.pop.limits import MAX_ATTEMPT_CHARACTERS, MAX_MESSAGES
from broker.pulls.message_filter import MessageFilter
from broker.pulls.request import filter_of
from broker.topics.names import check_group_name
from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.pop import MAX_INVISIBLE_MS
from remoting.wire.command import Command

ANY_QUEUE: Final = -1

_FROM_END: Final = 1


class PopRequest(NamedTuple):
    """A checked request.

    Attributes:
        queue_id: the queue, or -1 for any.
        invisible_ms: how long the messages are the client's; 0 for a notification or a peek.
        hold_s: how long to wait for a message; 0 for not at all.
        from_end: whether a new group begins with later messages.
        wanted: None for the subscription in the group's heartbeats.
        is_ordered: whether it waits until all messages that the group has of the queue are
            acknowledged.
        attempt_id: the same if a client repeats a request because it lost the answer.
    """

    group: str
    topic: str
    queue_id: int
    max_messages: int
    invisible_ms: int
    hold_s: float
    from_end: bool
    wanted: MessageFilter | None
    is_ordered: bool
    attempt_id: str


def read_pop(command: Command) -> PopRequest:
    """Read a pop.

    Raises RequestRefused: (1) too many messages, or a filter of another kind, (23) a filter that
    cannot be read, (29) a bad group name or time.
    """
    wanted = command.int32("maxMsgNums")
    if not 1 <= wanted <= MAX_MESSAGES:
        raise RequestRefused.failed(f"maxMsgNums {wanted}: pop 1 to {MAX_MESSAGES} messages")
    asked = read_notice(command)
    expression = command.fields.get("exp", "")
    kind = command.fields.get("expType", "")
    subscription = SubscriptionData(asked.topic, expression, expression_type=kind or "TAG")
    return asked._replace(
        max_messages=wanted,
        invisible_ms=read_invisible_ms(command),
        from_end=command.int32("initMode", 0) == _FROM_END,
        wanted=filter_of(subscription) if expression else None,
    )


def read_peek(command: Command) -> PopRequest:
    """Read a peek. Raises as `read_pop`."""
    most = min(max(command.int32("maxMsgNums"), 1), MAX_MESSAGES)
    return read_notice(command)._replace(max_messages=most)


def read_invisible_ms(command: Command) -> int:
    """Read for how long messages are not given again. Raises FieldMissing, RequestRefused (29)."""
    invisible_ms = command.integer("invisibleTime")
    if not 1 <= invisible_ms <= MAX_INVISIBLE_MS:
        raise RequestRefused.invalid(f"invisibleTime {invisible_ms}: 1 to {MAX_INVISIBLE_MS} ms")
    return invisible_ms


def read_notice(command: Command) -> PopRequest:
    """Read a notification. Raises as `read_pop`."""
    group, topic = command.name("consumerGroup"), command.name("topic")
    check_group_name(group)  # it is kept while the request waits
    attempt_id = command.fields.get("attemptId", "")
    if len(attempt_id) > MAX_ATTEMPT_CHARACTERS:
        raise RequestRefused.invalid(
            f"attemptId of {len(attempt_id)} characters: at most {MAX_ATTEMPT_CHARACTERS}"
        )
    return PopRequest(
        group,
        topic,
        command.int32("queueId"),
        1,
        0,
        min(max(command.integer("pollTime", 0), 0) / 1000, MAX_HOLD_S),
        False,
        None,
        command.fields.get("order", "") == "true",
        attempt_id,
    )
