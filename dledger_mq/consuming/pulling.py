"""The answer to a pull."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dledger.short_repr import short_repr
from dledger_mq.consuming.subscription import matches
from dledger_mq.received_message import ReceivedMessage, cut_messages
from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.message_queue import MessageQueue
from remoting.message.record import MessageRecord
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

# RocketMQ's pullBatchSize, and the most messages that its brokers return by default.
PULL_BATCH: Final = 32


class PullStatus(Enum):
    """How a pull ended."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCHING_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_MOVED = ResponseCode.PULL_OFFSET_MOVED


PULL_CODES: Final = frozenset(status.value for status in PullStatus)


@dataclass(slots=True)
class PullResult:
    """The outcome of a pull.

    Attributes:
        status: how it ended.
        messages: the messages that match the subscription.
        next_offset: where to go on.
        min_offset: the first queue offset that the broker holds.
        max_offset: the queue offset of the next message to be stored.
        unreadable: records whose body cannot be inflated.
    """

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    unreadable: list[MessageRecord]

    def __repr__(self) -> str:
        return short_repr(self)


def read_pull_reply(
    reply: Command, queue: MessageQueue, wanted: SubscriptionData, *, inflates: bool = True
) -> PullResult:
    """Decode the reply to a pull, whose code is one of `PULL_CODES`.

    Messages with tags that have the hash of a wanted tag, and no wanted tag, are left out.

    Raises:
        BodyCompressed: a body is compressed, and `inflates` is false.
        MessageMalformed: the body is no run of records, or the CRC of a message's body is wrong.
        FieldMissing: an offset is missing.
    """
    result = PullResult(
        PullStatus(reply.code),
        [],
        reply.integer("nextBeginOffset"),
        reply.integer("minOffset", -1),
        reply.integer("maxOffset", -1),
        [],
    )
    if result.status is PullStatus.FOUND:
        messages, result.unreadable = cut_messages(reply.body, queue, inflates=inflates)
        result.messages = (
            [one for one in messages if matches(wanted, one)] if wanted.tags else messages
        )
    return result
