"""The requests of consumers that pop. The names of the fields are RocketMQ's."""

from collections.abc import Iterable

from dledger_mq.connection.requests import command
from dledger_mq.popping.popped import Popped
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
    invisible_ms: int,
    hold_ms: int,
    now_ms: int,
    from_first: bool,
    attempt_id: str = "",
) -> Command:
    """Ask for messages, which are invisible to others for a time. A `queue` with the id -1 is any.

    RocketMQ's brokers count the hold from `now_ms`, the wall clock. `from_first`: a group
    that never consumed begins with the first message there is. An ordered pop has an `attempt_id`,
    the same when it is sent again because no answer came.
    """
    in_order = {"order": "true", "attemptId": attempt_id} if attempt_id else {}
    return command(
        RequestCode.POP_MESSAGE,
        consumerGroup=group,
        topic=queue.topic,
        queueId=queue.queue_id,
        maxMsgNums=most,
        invisibleTime=invisible_ms,
        pollTime=hold_ms,
        bornTime=now_ms,
        initMode="0" if from_first else "1",
        expType=wanted.expression_type,
        exp=wanted.expression,
        **in_order,
    )


def acknowledge(group: str, popped: Popped) -> Command:
    return _about_one(RequestCode.ACK_MESSAGE, group, popped)


def acknowledge_many(broker_name: str, pops: Iterable[AckedPop]) -> Command:
    return Command(RequestCode.BATCH_ACK_MESSAGE, body=encode_batch_ack(broker_name, pops))


def hide(group: str, popped: Popped, invisible_ms: int) -> Command:
    """Change a message's invisible time, which begins now."""
    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    return _about_one(code, group, popped, invisibleTime=invisible_ms)


def assigned_queues(group: str, topic: str, client_id: str) -> Command:
    return Command(RequestCode.QUERY_ASSIGNMENT, body=encode_question(group, topic, client_id))


def set_request_mode(mode: RequestMode) -> Command:
    return Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=encode_mode(mode))


def request_modes() -> Command:
    return Command(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)


def _about_one(code: RequestCode, group: str, popped: Popped, **more: int) -> Command:
    message = popped.message
    return command(
        code,
        consumerGroup=group,
        topic=message.queue.topic,
        queueId=message.queue.queue_id,
        offset=message.queue_offset,
        extraInfo=popped.receipt_handle,
        **more,
    )
