"""The body of a batch send: several messages for one queue in one request.

Layout of each, big-endian: i32 size (22 + body + properties), i32 magic, i32 CRC, i32 flag, i32
body length, body, i16 properties length, properties. Magic and CRC are 0 and readers ignore them.
Source: RocketMQ's MessageDecoder; C++, Go and Java clients write the same.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from remoting.message.errors import MessageMalformed
from remoting.message.properties import MAX_PROPERTIES_BYTES, decode_properties

_FIXED: Final = struct.Struct(">iiiii")
_PROPERTIES_LENGTH: Final = struct.Struct(">h")
_SMALLEST_BYTES: Final = 22

# The reply to a batch has one id of 33 characters for each message; 8192 of them fit into the
# longest header of a frame (512 KiB).
MAX_BATCH_MESSAGES: Final = 8192

# A message's body, its properties and its flag.
BatchParts: TypeAlias = tuple[bytes, bytes, int]


@dataclass(slots=True)
class BatchMessage:
    """One message of a batch. Topic and queue are those of the request.

    Attributes:
        body: never compressed by clients.
        properties: its own run of properties (see `remoting.message.properties`).
        flag: the user's number.
    """

    body: bytes
    properties: bytes = b""
    flag: int = 0

    def property_map(self) -> dict[str, str]:
        return decode_properties(self.properties)


def encode_batch_body(messages: Iterable[BatchMessage]) -> bytes:
    """Encode the body of a batch send.

    Raises:
        MessageMalformed: a message's properties are over 32767 bytes, or its flag over 32 bits.
    """
    parts: list[bytes] = []
    for message in messages:
        body, properties = message.body, message.properties
        if len(properties) > MAX_PROPERTIES_BYTES:
            raise MessageMalformed(
                f"properties of {len(properties)} bytes: at most {MAX_PROPERTIES_BYTES} can be sent"
            )
        try:
            size = _SMALLEST_BYTES + len(body) + len(properties)
            parts.append(_FIXED.pack(size, 0, 0, message.flag, len(body)))
        except struct.error:
            raise MessageMalformed("a message's flag or size does not fit 32 bits") from None
        parts += (body, _PROPERTIES_LENGTH.pack(len(properties)), properties)
    return b"".join(parts)


def decode_batch_body(body: bytes, max_messages: int = MAX_BATCH_MESSAGES) -> list[BatchMessage]:
    """Decode the body of a batch send, up to `max_messages`. Raises MessageMalformed."""
    return [BatchMessage(*parts) for parts in batch_parts(body, max_messages)]


def batch_parts(body: bytes, max_messages: int = MAX_BATCH_MESSAGES) -> list[BatchParts]:
    """Decode a batch like `decode_batch_body`, into tuples of body, properties and flag.

    Raises:
        MessageMalformed: a length contradicts another, the body ends early, or it has more than
            `max_messages`. No message of such a batch may be stored: to its sender it is one unit.
    """
    messages: list[BatchParts] = []
    at = 0
    length = len(body)
    while at < length:
        if len(messages) == max_messages:
            raise MessageMalformed(f"a batch of over {max_messages} messages: send smaller batches")
        if length - at < _SMALLEST_BYTES:
            raise MessageMalformed("the batch ends inside a message: send whole messages")
        size, _magic, _crc, flag, body_length = _FIXED.unpack_from(body, at)
        end = at + size
        body_at = at + _FIXED.size
        properties_at = body_at + body_length
        if size < _SMALLEST_BYTES or end > length or not at < properties_at <= end - 2:
            raise MessageMalformed("a message of the batch has a wrong length: send it again")
        properties_length = _PROPERTIES_LENGTH.unpack_from(body, properties_at)[0]
        if body_length < 0 or properties_length != end - properties_at - 2:
            raise MessageMalformed("a message of the batch has a wrong length: send it again")
        messages.append((body[body_at:properties_at], body[properties_at + 2 : end], flag))
        at = end
    return messages
