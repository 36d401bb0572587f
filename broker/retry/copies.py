"""Properties of retried messages and dead letters that refer to the original."""

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
    """Return the topic and id of the original for a copy in a retry topic, unless it has them."""
    found: dict[str, str] = {}
    if not pairs.get(RETRY_TOPIC):
        found[RETRY_TOPIC] = record.topic
    if not pairs.get(ORIGIN_MESSAGE_ID):
        found[ORIGIN_MESSAGE_ID] = message_id(
            record.store_host, record.store_port, record.physical_offset
        )
    return found


def dead_letter_properties(record: MessageRecord, pairs: Mapping[str, str]) -> dict[str, str]:
    """Return them for a dead letter, which has both in two properties."""
    found = retry_properties(record, pairs)
    found[DEAD_LETTER_ORIGIN_TOPIC] = pairs.get(RETRY_TOPIC) or record.topic
    found[DEAD_LETTER_ORIGIN_MESSAGE_ID] = pairs.get(ORIGIN_MESSAGE_ID) or found[ORIGIN_MESSAGE_ID]
    return found
