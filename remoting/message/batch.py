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

# The reply to a batch joins one id of 33 characters a message; 8192 of them stay under the longest
# header that a frame may have (512 KiB).
MAX_BATCH_MESSAGES: Final = 8192


# A message's body, its properties and its flag.
BatchParts: TypeAlias = tuple[bytes, bytes, int]


@dataclass(slots=True)
class BatchMessage:
    """One message of a batch: what is its own; topic and queue are the request's.

    Attributes:
        body: never compressed by clients.
        properties: its own run of properties (see `remoting.message.properties`).
        flag: the user's number.
    """

    body: bytes
    properties: bytes = b""
    flag: int = 0

    def property_map(self) -> dict[str, str]:
        """The properties as a dict; each call decodes them again."""
        return decode_properties(self.properties)


def encode_batch_body(messages: Iterable[BatchMessage]) -> bytes:
    """The body of a batch send.

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
    """Read the body of a batch send.

    Args:
        body: as it came.
        max_messages: reading ends with the first message above this number.

    Raises:
        MessageMalformed: as `batch_parts`.
    """
    return [BatchMessage(*parts) for parts in batch_parts(body, max_messages)]


def batch_parts(body: bytes, max_messages: int = MAX_BATCH_MESSAGES) -> list[BatchParts]:
    """As `decode_batch_body`, for those who make objects of their own: body, properties and flag.

    Raises:
        MessageMalformed: a length in it contradicts another, it ends early, or it has too many
            messages. Nothing of such a batch may be stored, since the sender takes it as one.
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
