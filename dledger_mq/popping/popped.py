"""Messages that a broker has given for a time, and what their consumer shows to acknowledge them.

Source: RocketMQ's MQClientAPIImpl.processPopResponse and ExtraInfoUtil.
"""

from dataclasses import dataclass
from typing import Final

from dledger_mq.consuming.subscription import matches
from dledger_mq.message import RETRY_TOPIC_PREFIX
from dledger_mq.received_message import ReceivedMessage, cut_messages
from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed

# Answers without messages: none came in time (RocketMQ also says so by 19), or too many wait.
NOTHING_CODES: Final = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})
POP_CODES: Final = NOTHING_CODES | {ResponseCode.SUCCESS, ResponseCode.POLLING_FULL}

# Kinds of topics in receipt handles: the topic itself, and RocketMQ's two for what comes again.
_ITSELF: Final = "0"
_RETRIES: Final = ("1", "2")


@dataclass(slots=True, eq=False)
class Popped:
    """A message that is this consumer's for a time.

    Attributes:
        message: the message.
        first: the first offset of the pop.
        popped_ms: when it was given, or hidden again, by the broker's clock.
        invisible_ms: for how long.
        check_point_queue: as the broker said it.
        kind: of its topic, as the broker said it.
        deadline: when it may be another consumer's, on trio's clock.
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
        """What the broker wants to see: eight words."""
        queue = self.message.queue
        return (
            f"{self.first} {self.popped_ms} {self.invisible_ms} {self.check_point_queue} "
            f"{self.kind} {queue.broker_name} {queue.queue_id} {self.message.queue_offset}"
        )


@dataclass(frozen=True, slots=True)
class PopResult:
    """What a pop brought.

    Attributes:
        messages: those that match the subscription.
        unwanted: those that do not: their tags have the hash of a wanted one.
        unreadable: how many there are whose bodies are damaged, or cannot be inflated.
        rest: messages of the queue behind these.
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
    """Read a reply to a pop that has messages.

    Args:
        reply: the reply.
        queue: the queue that was asked; the id -1 is any of its broker.
        wanted: the subscription.
        asked: when the request was sent, on trio's clock.
        came: when the reply came.
        now_ms: the wall clock then.
        inflates: whether compressed bodies are inflated.

    Raises:
        BodyCompressed: one is compressed, and is not to be inflated.
        MessageMalformed: the body is no run of records.
        FieldMissing: a field is missing.
        BodyMalformed: it does not say where its messages begin.
    """
    popped_ms, invisible_ms = reply.integer("popTime"), reply.integer("invisibleTime")
    # The time runs since the broker gave them: by its wall clock, but not since before the request.
    # Where clocks differ much, half of the time is left to ask the broker for more.
    age_s = min(max((now_ms - popped_ms) / 1000, 0.0), came - asked, invisible_ms / 2000)
    deadline = came + invisible_ms / 1000 - age_s
    firsts = _firsts(reply.fields.get("startOffsetInfo", ""))
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
        is_wanted = not wanted.tags or matches(wanted, message)
        (result.messages if is_wanted else result.unwanted).append(popped)
    return result


def _firsts(text: str) -> dict[tuple[str, int], int]:
    """The first offset by kind of topic and queue: "0 3 17;1 0 4"."""
    found: dict[tuple[str, int], int] = {}
    for part in text.split(";"):
        words = part.split(" ")
        if len(words) == 3 and words[1].isdecimal() and words[2].isdecimal():
            found[words[0], int(words[1])] = int(words[2])
    return found


def _place(firsts: dict[tuple[str, int], int], message: ReceivedMessage) -> tuple[str, int | None]:
    """The kind of a message's topic, and the first offset of its pop."""
    queue = message.queue
    kinds = _RETRIES if queue.topic.startswith(RETRY_TOPIC_PREFIX) else (_ITSELF,)
    for kind in kinds:
        if (kind, queue.queue_id) in firsts:
            return kind, firsts[kind, queue.queue_id]
    return _ITSELF, None
