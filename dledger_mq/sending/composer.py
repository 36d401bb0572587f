"""Checks and encodes messages."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dledger_mq.connection.identity import Identity
from dledger_mq.errors import InvalidMessage
from dledger_mq.message import MAX_BODY_BYTES, Message, check_message, checked_body, properties_of
from dledger_mq.sending.selectors import QueueSelector
from dledger_mq.sending.sending import SendCallback, Sending
from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.message.message_id import unique_message_key
from remoting.message.properties import (
    WAIT_STORE_MESSAGE_OK,
    edit_properties,
    encode_properties,
)
from remoting.message.topic_names import RETRY_PREFIX

# RocketMQ's compressMsgBodyOverHowmuch: bodies this long or longer are compressed.
COMPRESS_FROM_BYTES: Final = 4096

# The bytes that the window counts for the header of a message.
OVERHEAD_BYTES: Final = 512

# A producer has few topics; the bound keeps a faulty program from filling memory.
_REMEMBERED_TOPICS: Final = 64

# The properties of a request whose messages have their own.
BATCH_PROPERTIES: Final = encode_properties({WAIT_STORE_MESSAGE_OK: "true"})


class Composer:
    """Checks messages, gives them their ids, and encodes them.

    `wall_clock` gives milliseconds since 1970. Bodies of `compress_from_bytes` or more are to be
    compressed, longer ones than `max_body_bytes` are refused.
    """

    def __init__(
        self,
        identity: Identity,
        wall_clock: Callable[[], int],
        compress_from_bytes: int = COMPRESS_FROM_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._identity = identity
        self._wall_clock = wall_clock
        self._compress_from_bytes = compress_from_bytes
        self._max_body_bytes = max_body_bytes
        self._checked_topics: set[str] = set()
        self._counter = 0

    def message(
        self,
        message: Message,
        selector: QueueSelector | None,
        timeout_s: float,
        callback: SendCallback,
    ) -> Sending:
        """Compose one message. Raises InvalidMessage: brokers would refuse it."""
        self._check(message)
        body = checked_body(message, self._max_body_bytes)
        born = self._wall_clock()
        message_id = self._new_message_id(born)
        properties = properties_of(message, message_id)
        return Sending(
            message,
            message_id,
            body,
            properties,
            0,
            False,
            born,
            selector,
            callback,
            timeout_s,
            len(body) + len(properties) + OVERHEAD_BYTES,
            to_compress=len(body) >= self._compress_from_bytes,
        )

    def special(
        self,
        message: Message,
        selector: QueueSelector | None,
        timeout_s: float,
        callback: SendCallback,
        properties: Mapping[str, str],
        system_flag: int = 0,
    ) -> Sending:
        """Compose a message with properties and flags of RocketMQ's own, which goes by itself.

        Raises InvalidMessage.
        """
        sending = self.message(message, selector, timeout_s, callback)
        sending.properties = edit_properties(sending.properties, properties)
        sending.system_flag |= system_flag
        sending.goes_alone = True
        return sending

    def batch(
        self,
        messages: Sequence[Message],
        selector: QueueSelector | None,
        timeout_s: float,
        callback: SendCallback,
    ) -> Sending:
        """Compose messages of one topic as one request, by RocketMQ's rules. Raises
        InvalidMessage.
        """
        if not messages:
            raise InvalidMessage("", "a batch needs at least one message")
        first = messages[0]
        for message in messages:
            self._check(message)
        if first.topic.startswith(RETRY_PREFIX):
            raise InvalidMessage(first.topic, "a retry topic takes no batches")
        born = self._wall_clock()
        parts: list[BatchMessage] = []
        ids: list[str] = []
        for message in messages:
            body = checked_body(message, self._max_body_bytes)
            if message.topic != first.topic or message.is_delayed:
                raise InvalidMessage(
                    message.topic, "a batch has one topic and no delay level; send it apart"
                )
            ids.append(self._new_message_id(born))
            parts.append(BatchMessage(body, properties_of(message, ids[-1]), message.flag))
        body = encode_batch_body(parts)
        if len(body) > self._max_body_bytes:
            raise InvalidMessage(
                first.topic, f"a batch of {len(body)} bytes, at most {self._max_body_bytes}"
            )
        return Sending(
            first,
            ",".join(ids),
            body,
            BATCH_PROPERTIES,
            0,
            True,
            born,
            selector,
            callback,
            timeout_s,
            len(body) + OVERHEAD_BYTES,
        )

    def new_id(self) -> str:
        """Return a new id in the form of a message id."""
        return self._new_message_id(self._wall_clock())

    def _check(self, message: Message) -> None:
        topic = message.topic if type(message) is Message else None
        if type(topic) is not str or topic not in self._checked_topics:
            check_message(message)
            if len(self._checked_topics) >= _REMEMBERED_TOPICS:
                self._checked_topics.clear()
            self._checked_topics.add(message.topic)

    def _new_message_id(self, born_ms: int) -> str:
        identity = self._identity
        self._counter += 1
        return unique_message_key(
            identity.host, identity.process_id, identity.instance, born_ms, self._counter
        )
