"""The requests of consumers that pop, as commands. Names of fields are the wire's."""

from collections.abc import Iterable

from remoting.bodies.assignment import RequestMode, encode_mode, encode_question
from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.pop import AckedPop, encode_batch_ack
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command


def pop(
    group: str,
    queue: MessageQueue,
    wanted: SubscriptionData,
    *,
    most: int,
    invisible_milliseconds: int,
    hold_milliseconds: int,
    now_milliseconds: int,
    from_first: bool,
    attempt_id: str = "",
) -> Command:
    """Ask for messages for a time (200050).

    Args:
        group: the consumer group.
        queue: where from; the id -1 is any queue of the broker.
        wanted: the subscription; the broker filters by it.
        most: how many messages at most.
        invisible_milliseconds: for how long nobody else is given them.
        hold_milliseconds: how long the broker may hold the request when there is nothing.
        now_milliseconds: the wall clock; RocketMQ's brokers count the hold from it.
        from_first: whether a group that never consumed begins with the first message there is.
        attempt_id: of a pop in order: the same when it is asked again for want of an answer.
    """
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "maxMsgNums": str(most),
        "invisibleTime": str(invisible_milliseconds),
        "pollTime": str(hold_milliseconds),
        "bornTime": str(now_milliseconds),
        "initMode": "0" if from_first else "1",
        "expType": wanted.expression_type,
        "exp": wanted.expression,
    }
    if attempt_id:
        fields |= {"order": "true", "attemptId": attempt_id}
    return Command(RequestCode.POP_MESSAGE, fields)


def acknowledge(group: str, topic: str, queue_id: int, offset: int, receipt_handle: str) -> Command:
    """Acknowledge one message (200051)."""
    return Command(
        RequestCode.ACK_MESSAGE, _about_one(group, topic, queue_id, offset, receipt_handle)
    )


def acknowledge_many(broker_name: str, pops: Iterable[AckedPop]) -> Command:
    """Acknowledge many messages of one broker (200151)."""
    return Command(RequestCode.BATCH_ACK_MESSAGE, body=encode_batch_ack(broker_name, pops))


def hide(
    group: str,
    topic: str,
    queue_id: int,
    offset: int,
    receipt_handle: str,
    invisible_milliseconds: int,
) -> Command:
    """Have a message given again after another time than it was to be, from now on (200053)."""
    fields = _about_one(group, topic, queue_id, offset, receipt_handle)
    fields["invisibleTime"] = str(invisible_milliseconds)
    return Command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)


def assigned_queues(group: str, topic: str, client_id: str) -> Command:
    """Ask which queues of a topic a member reads (400)."""
    return Command(RequestCode.QUERY_ASSIGNMENT, body=encode_question(group, topic, client_id))


def set_request_mode(mode: RequestMode) -> Command:
    """Set how a group reads a topic (401)."""
    return Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=encode_mode(mode))


def request_modes() -> Command:
    """Ask for all request modes that were set (402)."""
    return Command(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)


def _about_one(
    group: str, topic: str, queue_id: int, offset: int, receipt_handle: str
) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "offset": str(offset),
        "extraInfo": receipt_handle,
    }
