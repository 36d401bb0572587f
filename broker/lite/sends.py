"""Stores messages of lite topics: those with a lite topic's name, sent to a parent."""

from collections.abc import Mapping

from broker.delay.due import DELAY_NAMES
from broker.errors import RequestRefused
from broker.formats.state import FORMATS
from broker.lite.commands import PutLite
from broker.lite.limits import MAX_LITE_BATCH, MAX_LITE_MESSAGES, MAX_LITE_TOPICS
from broker.lite.names import lite_key
from broker.lite.records import ADDED_BYTES
from broker.lite.state import LITE
from broker.log.command_layout import LogCommand
from broker.log.entry import LITE_VERSION
from broker.sends.pending_messages import PendingSend
from broker.serving.parts import Parts
from broker.topics.attributes import LITE_TYPE, MESSAGE_TYPE
from broker.topics.state import TOPICS
from remoting.message.properties import (
    LITE_TOPIC,
    MAX_PROPERTIES_BYTES,
    TRANSACTION_PREPARED,
    decode_properties,
)
from remoting.message.record import MessageRecord
from remoting.wire.codes import ResponseCode


class LiteSends:
    """Implements `sends.special_sends.SpecialSend`."""

    names = (LITE_TOPIC,)
    most_in_batch = MAX_LITE_BATCH

    def __init__(self, parts: Parts) -> None:
        self._lite = parts.state[LITE]
        self._topics = parts.state[TOPICS]
        self._formats = parts.state[FORMATS]

    def is_asked_for(self, pairs: Mapping[str, str]) -> bool:
        """Return whether the message names a lite topic.

        Raises RequestRefused (13): it is delayed, or of a transaction, as well.
        """
        if not pairs.get(LITE_TOPIC):
            return False
        if pairs.get(TRANSACTION_PREPARED, "").lower() == "true" or any(
            name in pairs for name in DELAY_NAMES
        ):
            raise RequestRefused.illegal(
                "a message of a lite topic can neither be delayed nor be of a transaction"
            )
        return True

    def prepare(self, send: PendingSend, pairs: Mapping[str, str]) -> None:
        """Have the messages of a send go to their lite topics, if their topic has such.

        Raises RequestRefused: (1) not all members know lite topics, (13) no room for the properties
        that are added, or some messages of a batch name no lite topic, (29) a bad name, (2017) too
        many lite topics, or messages in them.
        """
        config = self._topics.configs.get(send.topic)
        if config is None or config.attributes.get(MESSAGE_TYPE) != LITE_TYPE:
            return
        if self._formats.format_version < LITE_VERSION:
            raise RequestRefused.failed(
                "not all members have said that they know lite topics: start all of them, and "
                "upgrade those of an earlier version"
            )
        lite = self._lite
        names: list[bytes] = []
        for record in send.records:
            if len(record.properties) > MAX_PROPERTIES_BYTES - ADDED_BYTES:
                raise RequestRefused.illegal(
                    f"properties of {len(record.properties)} bytes: at most "
                    f"{MAX_PROPERTIES_BYTES - ADDED_BYTES} in a lite topic"
                )
            names.append(lite_key(_named(record)))
        new = {name for name in names if lite.row(send.topic, name) is None}
        if new and lite.topic_count + len(new) > MAX_LITE_TOPICS:
            raise _too_many(f"{lite.topic_count} lite topics: wait until some end")
        if lite.message_count + len(names) > MAX_LITE_MESSAGES:
            raise _too_many(f"lite topics have {lite.message_count} messages: wait until some end")
        send.attach = _attached


def _named(record: MessageRecord) -> str:
    return decode_properties(record.properties).get(LITE_TOPIC, "")


def _attached(record: MessageRecord) -> LogCommand:
    return PutLite(_named(record), MAX_LITE_TOPICS, MAX_LITE_MESSAGES)


def _too_many(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.LMQ_QUOTA_EXCEEDED, remark)
