"""Joins single messages to batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dledger.renamed import renamed_fields
from dledger_mq.argument_checks import is_number_in
from dledger_mq.errors import InvalidBatching
from dledger_mq.message import Message
from dledger_mq.sending.sending import Sending
from remoting.bodies.message_queue import MessageQueue
from remoting.message.batch import MAX_BATCH_MESSAGES, BatchMessage, encode_batch_body
from remoting.message.topic_names import RETRY_PREFIX

# A broker needs a few milliseconds for such a batch; larger batches are no faster.
DEFAULT_MAX_MESSAGES: Final = 256
DEFAULT_MAX_BYTES: Final = 256 * 1024

# Longer lingering would use up most of a message's timeout.
MAX_LINGER_MS: Final = 1000.0

# RocketMQ's brokers refuse larger bodies by default.
_LARGEST_BYTES: Final = 4 * 1024 * 1024

# Messages of one batch share one deadline, so their own ones may differ by at most this much.
_DEADLINE_SPREAD_S: Final = 0.25

# The bytes that the layout of a batch adds to a body and properties.
_LAYOUT_BYTES: Final = 22


@renamed_fields(linger_milliseconds="linger_ms")
@dataclass(frozen=True, slots=True)
class Batching:
    """How a producer joins messages of `send`, `send_many` and `send_nowait` to batches.

    RocketMQ's rules: the messages of a batch have one topic and go to one queue; delayed messages,
    compressed ones and those of a retry topic go by themselves.

    Attributes:
        linger_ms: how long a message waits for others. With 0, messages that are ready at
            the same moment go together, and a message goes at once if no other is in flight.
        max_messages: of one batch; at most 8192.
        max_bytes: of one batch: bodies and properties. A larger message goes by itself.

    Raises:
        InvalidBatching: a number is out of range.
    """

    linger_ms: float = 0.0
    max_messages: int = DEFAULT_MAX_MESSAGES
    max_bytes: int = DEFAULT_MAX_BYTES

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("linger_ms", self.linger_ms, 0, MAX_LINGER_MS),
            ("max_messages", self.max_messages, 1, MAX_BATCH_MESSAGES),
            ("max_bytes", self.max_bytes, 1, _LARGEST_BYTES),
        ):
            if not is_number_in(value, least, most, whole=name != "linger_ms"):
                raise InvalidBatching(name, value, least, most)


@dataclass(slots=True)
class _Open:
    """A batch that messages are still added to."""

    sendings: list[Sending]
    queue: MessageQueue | None
    left_messages: int
    left_bytes: int
    deadline: float


class Joined:
    """Arranges messages of one topic in requests; messages to the same queue keep their order."""

    def __init__(self, batching: Batching | None) -> None:
        self._batching = batching
        self._open: dict[MessageQueue | None, _Open] = {}
        self._done: list[_Open] = []

    def add(self, sending: Sending, queue: MessageQueue | None) -> None:
        """Add a message; `queue` is its queue, or None for any queue."""
        batching = self._batching
        if batching is None or not may_join(sending):
            self._close(queue)
            self._done.append(_Open([sending], queue, 0, 0, sending.deadline))
            return
        size = len(sending.body) + len(sending.properties) + _LAYOUT_BYTES
        batch = self._open.get(queue)
        if (
            batch is None
            or not batch.left_messages
            or size > batch.left_bytes
            or abs(sending.deadline - batch.deadline) > _DEADLINE_SPREAD_S
        ):
            self._close(queue)
            batch = self._open[queue] = _Open(
                [], queue, batching.max_messages, batching.max_bytes, sending.deadline
            )
        batch.sendings.append(sending)
        batch.left_messages -= 1
        batch.left_bytes -= size

    def take(self) -> Iterator[tuple[list[Sending], MessageQueue | None]]:
        """Yield the requests to make, in their order."""
        for queue in list(self._open):
            self._close(queue)
        for batch in self._done:
            yield batch.sendings, batch.queue

    def _close(self, queue: MessageQueue | None) -> None:
        batch = self._open.pop(queue, None)
        if batch is not None:
            self._done.append(batch)


def may_join(sending: Sending) -> bool:
    message: Message = sending.message
    return not (
        sending.batch
        or sending.system_flag
        or sending.goes_alone
        or message.is_delayed
        or sending.topic.startswith(RETRY_PREFIX)
    )


def joined_body(sendings: Sequence[Sending]) -> bytes:
    return encode_batch_body([BatchMessage(one.body, one.properties, one.flag) for one in sendings])
