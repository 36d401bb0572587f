"""One message in flight, and the meaning of a broker's answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dledger_mq.errors import OutcomeUnknown, Rejected, SendFailed
from dledger_mq.message import Message
from dledger_mq.send_result import SendResult, SendStatus
from dledger_mq.sending.selectors import QueueSelector
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import ResponseCode, response_name
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

# Refusals after which another attempt may succeed, at another broker or a moment later: the broker
# is busy, is not the leader, or does not know the topic yet. The message is not stored. Source: the
# codes after which RocketMQ's producer tries again, and SYSTEM_BUSY, which its users miss.
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

# Refusals of a queue that the topic does not have any more: its route has to be refreshed. As they
# may mean something else, or name servers may not know of the change yet, there are few attempts.
NO_QUEUE_CODES: Final = frozenset({ResponseCode.INVALID_PARAMETER})
NO_QUEUE_ATTEMPTS: Final = 5

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
        message: the user's, which may change meanwhile; of a batch, the first.
        topic, flag: of the message when it was sent.
        body: as it is sent.
        properties: encoded.
        batch: the body holds several messages.
        selector: chooses its queue; None for one queue after the other.
        callback: called with the outcome, once.
        timeout_s: of all attempts together.
        weight: the bytes that the window counts.
        to_compress: the body is to be compressed before the first attempt.
        called_at: when its user's call began, on the pipeline's clock.
        deadline: when to give up, on the pipeline's clock; known once its first attempt begins.
        goes_alone: it was refused together with others.
        without_queue: how often a broker answered that it does not have the queue.
        attempts: how often it was handed to a connection.
        maybe_stored: it is unknown whether an earlier attempt was stored.
        queue: of the last attempt.
        address: the broker that has not answered the last attempt, or an empty text.
        together: all messages of the last attempt's request; also identifies the attempt.
        attempted_at: when the last attempt began, on the pipeline's clock.
        reason: the failure of the last attempt.
        code: the response code of that failure.
    """

    message: Message
    message_id: str
    body: bytes
    properties: bytes
    system_flag: int
    batch: bool
    born_ms: int
    selector: QueueSelector | None
    callback: SendCallback
    timeout_s: float
    weight: int
    to_compress: bool = False
    called_at: float = 0.0
    deadline: float = float("inf")
    goes_alone: bool = False
    without_queue: int = 0
    attempts: int = 0
    maybe_stored: bool = False
    queue: MessageQueue | None = None
    address: str = ""
    together: "Sequence[Sending]" = ()
    attempted_at: float = 0.0
    reason: str = "no attempt was made"
    code: int | None = None
    topic: str = field(init=False)
    flag: int = field(init=False)

    def __post_init__(self) -> None:
        self.topic, self.flag = self.message.topic, self.message.flag

    def set_compressed(self, body: bytes, flag: int) -> int:
        """Replace the body by the compressed one, if it is shorter; return the bytes it saves."""
        self.to_compress = False
        saved_bytes = len(self.body) - len(body)
        if saved_bytes <= 0:
            return 0  # what compression makes longer may be too long for brokers
        self.weight -= saved_bytes
        self.body = body
        self.system_flag |= flag
        return saved_bytes

    def failure(self) -> SendFailed:
        """Return the error if there is no further attempt."""
        kind = OutcomeUnknown if self.maybe_stored else Rejected
        return kind(self.topic, self.reason, self.attempts, self.code)


def is_refused_for_good(answer: Command | RemotingError) -> bool:
    """Return whether the same request would be refused again.

    If it had several messages, each may be accepted by itself.
    """
    if isinstance(answer, RemotingError):
        return getattr(answer, "outcome_unknown", None) is None
    code = answer.code
    return code not in MAYBE_STORED_CODES | TRY_AGAIN_CODES | NO_QUEUE_CODES | _STORED_CODES


class Acknowledgement:
    """A broker's success for all `count` messages of one request.

    Its `queue_id` is None, and its `first_offset` -1, if the reply does not have them. A delayed
    message, with its `recall_handle`, always goes alone. Raises FieldMissing: a number is
    malformed.
    """

    __slots__ = ("first_offset", "ids", "queue_id", "recall_handle", "status")

    def __init__(self, answer: Command, count: int) -> None:
        ids = answer.fields["msgId"]
        separate = ids.split(",") if count > 1 else (ids,)
        self.status = SendStatus(answer.code)
        self.ids = separate if len(separate) == count else (ids,) * count
        self.queue_id = answer.integer("queueId") if "queueId" in answer.fields else None
        self.first_offset = answer.integer("queueOffset", -1)
        self.recall_handle = answer.fields.get("recallHandle", "")

    def result(self, sending: Sending, queue: MessageQueue, at: int) -> SendResult:
        """Return the outcome of one message, the one at `at` of the request."""
        if self.queue_id is not None and self.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, self.queue_id)
        offset = self.first_offset
        return SendResult(
            self.status,
            sending.message_id,
            self.ids[at],
            queue,
            offset + at if offset >= 0 else offset,
            sending.attempts,
            sending.maybe_stored,
            self.recall_handle,
        )


def acknowledgement(answer: Command | RemotingError, count: int) -> Acknowledgement | None:
    """Return the success of `count` messages, or None if the answer is none.

    Raises:
        FieldMissing: it is a success that cannot be decoded: all may be stored.
    """
    if not isinstance(answer, Command):
        return None
    if answer.code not in _STORED_CODES or "msgId" not in answer.fields:
        return None
    return Acknowledgement(answer, count)


def judge(sending: Sending, answer: Command | RemotingError) -> SendFailed | None:
    """Return the error that an answer without success means, or None for another attempt.

    The failure is recorded in `sending`.
    """
    if isinstance(answer, RemotingError):
        sending.reason = str(answer)
        sending.code = None
        # Errors of a connection or an address tell whether the request may have arrived. All others
        # were raised before anything was sent, and another attempt would raise them, too.
        outcome_unknown = getattr(answer, "outcome_unknown", None)
        sending.maybe_stored |= bool(outcome_unknown)
        return sending.failure() if outcome_unknown is None else None
    sending.reason = f"{response_name(answer.code)}: {answer.remark or 'no reason given'}"
    sending.code = answer.code
    if answer.code in MAYBE_STORED_CODES:
        sending.maybe_stored = True
        return None
    if answer.code in NO_QUEUE_CODES and sending.without_queue < NO_QUEUE_ATTEMPTS:
        sending.without_queue += 1
        sending.goes_alone = True
        return None
    if answer.code in TRY_AGAIN_CODES or answer.code in _STORED_CODES:
        return None
    return sending.failure()
