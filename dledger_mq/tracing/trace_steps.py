"""The trace records of producers and consumers, in RocketMQ's format. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dledger_mq.message import Message, TransactionState
from dledger_mq.received_message import ReceivedMessage
from dledger_mq.send_result import SendResult
from dledger_mq.sending.sending import Sending, SendOutcome
from remoting.bodies.trace import encode_trace_record
from remoting.message.properties import MESSAGE_REGION
from remoting.message.record import TRANSACTION_PREPARED

# The region that brokers put into messages without one, RocketMQ's too.
DEFAULT_REGION: Final = "DefaultRegion"

# RocketMQ's numbers of types of messages.
_NORMAL: Final = "0"
_HALF: Final = "1"
_DELAYED: Final = "3"

_COMMIT: Final = "2"

_STATES: Final = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",  # as RocketMQ spells it
}

# A trace message has the keys of all its steps, in properties of at most 32 KiB.
_MOST_KEY_CHARACTERS: Final = 1024

# RocketMQ's ConsumeReturnType.
_SUCCESS: Final = "0"
_FAILED: Final = "4"


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of one message.

    Attributes:
        record: encoded.
        found_by: the message's id and keys, which become keys of the trace message.
    """

    record: str
    found_by: tuple[str, ...]


def sent_steps(
    group: str, sending: Sending, outcome: SendOutcome, address: str, took_s: float
) -> list[TraceStep]:
    """Return the step of a send, or one step for each message of a batch.

    `address` is that of the queue's broker, or "" if it is unknown; `took_s` is since the first
    attempt.
    """
    message = sending.message
    is_stored = isinstance(outcome, SendResult)
    kind = _NORMAL
    if sending.system_flag & TRANSACTION_PREPARED:
        kind = _HALF
    elif message.is_delayed:
        kind = _DELAYED
    fields = {
        "at_ms": str(sending.born_ms),
        "region": DEFAULT_REGION,
        "group": group,
        "topic": message.topic,
        "store_host": address,
        "body_bytes": str(len(sending.body)),
        "cost_ms": str(round(took_s * 1000)),
        "message_type": kind,
        "succeeded": "true" if is_stored else "false",
    }
    keys = "" if sending.batch else joined_keys(message)
    if not sending.batch:
        fields |= {"tags": message.tags, "keys": keys}
    ids = sending.message_id.split(",") if sending.batch else [sending.message_id]
    stored = outcome.offset_message_id.split(",") if isinstance(outcome, SendResult) else []
    return [
        TraceStep(
            encode_trace_record(
                "Pub",
                {
                    **fields,
                    "message_id": message_id,
                    "offset_message_id": stored[at] if len(stored) == len(ids) else "",
                },
            ),
            _words(message_id, keys),
        )
        for at, message_id in enumerate(ids)
    ]


def began_steps(
    group: str, request: str, messages: Iterable[ReceivedMessage], at_ms: int
) -> list[TraceStep]:
    """Return the steps of a call of a listener, or of a loop's turn; `request` is the call's id."""
    return [
        _step(
            one,
            "SubBefore",
            {
                "at_ms": str(at_ms),
                "region": one.properties.get(MESSAGE_REGION, DEFAULT_REGION),
                "group": group,
                "request": request,
                "retry_times": str(one.reconsume_times),
            },
        )
        for one in messages
    ]


def ended_steps(
    group: str,
    request: str,
    messages: Sequence[ReceivedMessage],
    at_ms: int,
    took_s: float,
    *,
    is_consumed: bool,
) -> list[TraceStep]:
    return [
        _step(
            one,
            "SubAfter",
            {
                "request": request,
                "cost_ms": str(round(took_s * 1000)),
                "succeeded": "true" if is_consumed else "false",
                "outcome": _SUCCESS if is_consumed else _FAILED,
                "at_ms": str(at_ms),
                "group": group,
            },
        )
        for one in messages
    ]


def transaction_step(
    group: str,
    message: Message | ReceivedMessage,
    message_id: str,
    state: TransactionState,
    at_ms: int,
    address: str,
    *,
    from_check: bool,
) -> TraceStep:
    """Return the step of a producer that ends a transaction.

    `address` is that of the broker, or "" if it is unknown; `from_check`: the broker has asked.
    """
    keys = joined_keys(message)
    return TraceStep(
        encode_trace_record(
            "EndTransaction",
            {
                "at_ms": str(at_ms),
                "region": DEFAULT_REGION,
                "group": group,
                "topic": message.topic,
                "message_id": message_id,
                "tags": message.tags,
                "keys": keys,
                "store_host": address,
                "message_type": _COMMIT,
                "transaction_id": message_id,
                "state": _STATES[state],
                "from_check": "true" if from_check else "false",
            },
        ),
        _words(message_id, keys),
    )


def joined_keys(message: Message | ReceivedMessage) -> str:
    """Return a message's keys, separated by spaces."""
    return message.keys if isinstance(message.keys, str) else " ".join(message.keys)


def _step(message: ReceivedMessage, kind: str, fields: dict[str, str]) -> TraceStep:
    keys = message.keys
    record = encode_trace_record(kind, {**fields, "message_id": message.message_id, "keys": keys})
    return TraceStep(record, _words(message.message_id, keys))


def _words(message_id: str, keys: str) -> tuple[str, ...]:
    """Return the words to find a step by: of the id and of the keys, without what is too long for
    one message.

    Both come from the producer, whose id may be any text.
    """
    kept = [text for text in (message_id, keys) if len(text) <= _MOST_KEY_CHARACTERS]
    return tuple(word for text in kept for word in text.split())
