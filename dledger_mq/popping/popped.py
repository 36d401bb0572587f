"""Popped messages, and the receipt handles that acknowledge them.

Source: RocketMQ's MQClientAPIImpl.processPopResponse and ExtraInfoUtil.
"""

from dataclasses import dataclass
from typing import Final

from dledger_mq.consuming.subscription import matches
from dledger_mq.received_message import ReceivedMessage, cut_messages
from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.message_queue import MessageQueue
from remoting.message.topic_names import RETRY_PREFIX
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed

# Answers without messages: none came in time (RocketMQ's brokers also answer 19, PULL_NOT_FOUND),
# or too many pops wait (POLLING_FULL).
NOTHING_CODES: Final = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})
POP_CODES: Final = NOTHING_CODES | {ResponseCode.SUCCESS, ResponseCode.POLLING_FULL}

# Kinds of topics in receipt handles: the topic itself, and RocketMQ's two kinds of retry topics.
_ITSELF: Final = "0"
_RETRIES: Final = ("1", "2")


@dataclass(slots=True, eq=False)
class Popped:
    """A message that is this consumer's for a time.

    Attributes:
        first: the first queue offset of the pop.
        popped_ms: when it was popped, or hidden again, by the broker's clock.
        invisible_ms: its invisible time.
        check_point_queue: the revive queue that the broker named.
        kind: the kind of topic that the broker named.
        deadline: when it may become another consumer's, on trio's clock.
        taken: when it came, on trio's clock.
        is_settled: it was acknowledged or given back, or its time is over.
        is_being_hidden: a request that changes its time, and its handle, is on its way.
        wants_acknowledgement: it is to be acknowledged once that request has ended.
    """

    message: ReceivedMessage
    first: int
    popped_ms: int
    invisible_ms: int
    check_point_queue: int
    kind: str
    deadline: float
    taken: float
    is_settled: bool = False
    is_being_hidden: bool = False
    wants_acknowledgement: bool = False

    @property
    def receipt_handle(self) -> str:
        """The handle that acknowledges the message: eight words."""
        queue = self.message.queue
        return (
            f"{self.first} {self.popped_ms} {self.invisible_ms} {self.check_point_queue} "
            f"{self.kind} {queue.broker_name} {queue.queue_id} {self.message.queue_offset}"
        )


@dataclass(frozen=True, slots=True)
class PopResult:
    """The answer to a pop.

    Attributes:
        messages: the messages that match the subscription.
        unwanted: the messages that do not, but whose tags have the hash of a wanted one.
        unreadable: how many bodies are damaged, or cannot be inflated.
        rest: how many messages of the queue follow these.
    """

    messages: list[Popped]
    unwanted: list[Popped]
    unreadable: int
    rest: int


def read_pop_reply(
    reply: Command,
    queue: MessageQueue,
    wanted: SubscriptionData,
    *,
    asked: float,
    came: float,
    now_ms: int,
    inflates: bool = True,
) -> PopResult:
    """Decode the reply to a pop that has messages.

    `asked` and `came` are the times of request and reply, on trio's clock; `now_ms` is
    the wall clock at the reply.

    Raises:
        BodyCompressed: a body is compressed, and `inflates` is false.
        MessageMalformed: the body is no run of records.
        FieldMissing: a field is missing.
        BodyMalformed: the first offset of the messages is missing.
    """
    popped_ms, invisible_ms = reply.integer("popTime"), reply.integer("invisibleTime")
    # The invisible time began when the broker answered: by its wall clock, but not before the
    # request. If clocks differ much, half of the time is left, for a renewal.
    age_s = min(max((now_ms - popped_ms) / 1000, 0.0), came - asked, invisible_ms / 2000)
    deadline = came + invisible_ms / 1000 - age_s
    firsts = first_offsets(reply.fields.get("startOffsetInfo", ""))
    read_from = queue
    if queue.queue_id < 0 and len(firsts) == 1:
        _kind, queue_id = next(iter(firsts))
        read_from = MessageQueue(queue.topic, queue.broker_name, queue_id)
    messages, unreadable = cut_messages(reply.body, read_from, come_again=True, inflates=inflates)
    result = PopResult([], [], len(unreadable), reply.integer("restNum", 0))
    for message in messages:
        kind, first = _place(firsts, message)
        if first is None:
            raise BodyMalformed("answer to a pop", "it does not say where its messages begin")
        popped = Popped(
            message,
            first,
            popped_ms,
            invisible_ms,
            reply.integer("reviveQid", 0),
            kind,
            deadline,
            came,
        )
        (result.messages if matches(wanted, message) else result.unwanted).append(popped)
    return result


def first_offsets(text: str) -> dict[tuple[str, int], int]:
    """Return the first offset by kind of topic and queue: "0 3 17;1 0 4"."""
    found: dict[tuple[str, int], int] = {}
    for part in text.split(";"):
        words = part.split(" ")
        if len(words) == 3 and words[1].isdecimal() and words[2].isdecimal():
            found[words[0], int(words[1])] = int(words[2])
    return found


def _place(firsts: dict[tuple[str, int], int], message: ReceivedMessage) -> tuple[str, int | None]:
    """Return the kind of a message's topic, and the first offset of its pop."""
    queue = message.queue
    kinds = _RETRIES if queue.topic.startswith(RETRY_PREFIX) else (_ITSELF,)
    for kind in kinds:
        if (kind, queue.queue_id) in firsts:
            return kind, firsts[kind, queue.queue_id]
    return _ITSELF, None
