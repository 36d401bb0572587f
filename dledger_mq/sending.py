"""One message on its way to a broker, and what an answer means for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from dledger_mq.errors import OutcomeUnknown, Rejected, SendFailed
from dledger_mq.message import Message
from dledger_mq.selectors import QueueSelector
from dledger_mq.send_result import SendResult, SendStatus
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import ResponseCode, response_name
from remoting.wire.command import Command
from remoting.wire.errors import FieldMissing, RemotingError

# Refusals after which another attempt may succeed, at another broker or a moment later: the broker
# is busy, is not the leader (any more), or has not heard of the topic. The message is not stored.
# Source: the codes RocketMQ's producer tries again after, and SYSTEM_BUSY, which its users miss.
TRY_AGAIN_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.GO_AWAY,
    }
)

# Failures that may have happened after the message was stored: a leader that loses its leadership
# between storing and committing answers SYSTEM_ERROR, and the next leader may keep the message.
MAYBE_STORED_CODES: Final = frozenset({ResponseCode.SYSTEM_ERROR})

_STORED_CODES: Final = frozenset({0, 10, 11, 12})

SendOutcome: TypeAlias = SendResult | SendFailed
SendCallback: TypeAlias = Callable[[SendOutcome], None]


@dataclass(slots=True, eq=False)
class Sending:
    """A message between `send` and its outcome.

    Attributes:
        message: what the user gave; of a batch, the first.
        message_id: the id the producer gave it.
        body: as it goes over the wire.
        properties: the run of properties as text.
        system_flag: compression.
        batch: the body holds several messages.
        born_milliseconds: when it was made.
        selector: chooses its queue, or None for one after the other.
        callback: told the outcome, once.
        timeout_seconds: how long all attempts together may take.
        weight: the bytes it holds of the window.
        called_at: when its user's call began, on trio's clock.
        deadline: when to give up, on trio's clock; known once its sending begins.
        attempts: how often it was handed to a connection.
        maybe_stored: an attempt ended without telling whether it was stored.
        queue: the queue of the last attempt.
        address: the broker that has not answered the last attempt, or an empty text.
        attempted_at: when the last attempt began, on trio's clock.
        reason: how the last attempt failed.
        code: the response code it failed with.
    """

    message: Message
    message_id: str
    body: bytes
    properties: str
    system_flag: int
    batch: bool
    born_milliseconds: int
    selector: QueueSelector | None
    callback: SendCallback
    timeout_seconds: float
    weight: int
    called_at: float = 0.0
    deadline: float = float("inf")
    attempts: int = 0
    maybe_stored: bool = False
    queue: MessageQueue | None = None
    address: str = ""
    attempted_at: float = 0.0
    reason: str = "no attempt was made"
    code: int | None = None

    def failure(self) -> SendFailed:
        """The error to tell when there will be no further attempt."""
        kind = OutcomeUnknown if self.maybe_stored else Rejected
        return kind(self.message.topic, self.reason, self.attempts, self.code)


def judge(sending: Sending, answer: Command | RemotingError) -> SendOutcome | None:
    """What an answer means: the outcome, or None when another attempt should be made.

    Notes in `sending` what was learnt.

    Args:
        sending: the message, whose `queue` is that of the attempt.
        answer: the reply, or why there is none.
    """
    if isinstance(answer, RemotingError):
        sending.reason = str(answer)
        sending.code = None
        # Errors of a connection or an address tell whether the request may have arrived. All others
        # come from before anything was sent, and would come again.
        outcome_unknown = getattr(answer, "outcome_unknown", None)
        sending.maybe_stored |= bool(outcome_unknown)
        return sending.failure() if outcome_unknown is None else None
    queue = sending.queue
    if answer.code in _STORED_CODES and "msgId" in answer.fields and queue is not None:
        return _acknowledged(sending, queue, answer)
    sending.reason = f"{response_name(answer.code)}: {answer.remark or 'no reason given'}"
    sending.code = answer.code
    if answer.code in MAYBE_STORED_CODES:
        sending.maybe_stored = True
        return None
    if answer.code in TRY_AGAIN_CODES or answer.code in _STORED_CODES:
        return None
    return sending.failure()


def _acknowledged(sending: Sending, queue: MessageQueue, answer: Command) -> SendOutcome:
    """The outcome that a broker's success tells."""
    try:
        queue_id = answer.integer("queueId", queue.queue_id)
        queue_offset = answer.integer("queueOffset", -1)
    except FieldMissing as error:
        sending.maybe_stored = True
        sending.reason = str(error)
        return sending.failure()
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    return SendResult(
        SendStatus(answer.code),
        sending.message_id,
        answer.fields["msgId"],
        queue,
        queue_offset,
        sending.attempts,
        sending.maybe_stored,
    )
