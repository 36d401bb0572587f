"""How the commands print a message."""

import json

from dledger_mq.received_message import ReceivedMessage


def message_line(message: ReceivedMessage, as_json: bool) -> str:
    """A line: its body, or a JSON object."""
    body = message.body.decode("utf-8", "backslashreplace")
    if not as_json:
        return body
    return json.dumps(
        {
            "topic": message.topic,
            "tags": message.tags,
            "keys": message.keys,
            "body": body,
            "message_id": message.message_id,
            "offset_message_id": message.offset_message_id,
            "broker_name": message.queue.broker_name,
            "queue_id": message.queue.queue_id,
            "queue_offset": message.queue_offset,
            "reconsume_times": message.reconsume_times,
            "born_timestamp": message.born_timestamp,
            "store_timestamp": message.store_timestamp,
            "properties": message.properties,
        }
    )
