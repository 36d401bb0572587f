"""What copies of messages that could not be consumed say of where they come from."""

from collections.abc import Mapping

from remoting.message.message_id import message_id
from remoting.message.properties import (
    DEAD_LETTER_ORIGIN_MESSAGE_ID,
    DEAD_LETTER_ORIGIN_TOPIC,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
)
from remoting.message.record import MessageRecord


def retry_properties(record: MessageRecord, pairs: Mapping[str, str]) -> dict[str, str]:
    """Of a copy in a retry topic: topic and id of the message, unless it is a copy itself."""
    found: dict[str, str] = {}
    if not pairs.get(RETRY_TOPIC):
        found[RETRY_TOPIC] = record.topic
    if not pairs.get(ORIGIN_MESSAGE_ID):
        found[ORIGIN_MESSAGE_ID] = message_id(
            record.store_host, record.store_port, record.physical_offset
        )
    return found


def dead_letter_properties(record: MessageRecord, pairs: Mapping[str, str]) -> dict[str, str]:
    """The same of a dead letter, where both stand once more."""
    found = retry_properties(record, pairs)
    found[DEAD_LETTER_ORIGIN_TOPIC] = pairs.get(RETRY_TOPIC) or record.topic
    found[DEAD_LETTER_ORIGIN_MESSAGE_ID] = pairs.get(ORIGIN_MESSAGE_ID) or found[ORIGIN_MESSAGE_ID]
    return found
