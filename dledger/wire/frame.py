"""Frames between members and from clients: lengths, a msgpack header, and a raw payload.

======== ===== ===================================================================
 offset  size  field
======== ===== ===================================================================
      0     4  length of all that follows this field
      4     2  length of the header
      6        header: a msgpack array
      ...      payload: bytes, passed on as they are (entries exactly as on disk)
======== ===== ===================================================================
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgpack

from dledger.entry import MAX_BODY_BYTES
from dledger.errors import MessageMalformed

# The largest entry (LARGEST_BODY_BYTES), or a full batch, and room for a header. A larger frame is
# refused before memory is allocated for it.
MAX_FRAME_BYTES = MAX_BODY_BYTES + 1024 * 1024

# Headers hold a few numbers and names; the term runs of a batch are the longest part.
MAX_HEADER_BYTES = 60_000

# Elements of one array in a header: the heartbeats of 2,000 channels take the most, four each. The
# limit is needed because a few bytes can announce any number of elements at each level of nesting,
# and msgpack allocates room for all of them at once.
MAX_HEADER_ELEMENTS = 10_000
# Keys of one map: many times the fields of a status, or the members of a group.
MAX_HEADER_KEYS = 1_000

# An error message shows this much of an unexpected text.
_SHOWN_CHARACTERS = 40

_LENGTHS = struct.Struct(">IH")
_LENGTH_BYTES = 4

# The first bytes of other protocols. Read as a frame's length each means over 300 MB.
_TLS = b"\x16\x03"
_OTHERS = {
    b"HTTP": "HTTP",
    b"PRI ": "HTTP/2",
    b"SSH-": "SSH",
}
_HTTP_REQUESTS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC")
_NO_HTTP = "this is the port of the log, and answers no HTTP: GET /metrics is answered at --metrics"
HTTP_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s\n" % (len(_NO_HTTP) + 1, _NO_HTTP.encode())
)
# A frame of RocketMQ's has lengths of 4 bytes each, and then mostly JSON.
_ROCKETMQ_AT, _ROCKETMQ = 8, b'{"'


class Frame(NamedTuple):
    header: list[object]
    payload: bytes


def encode_frame(header: list[object], payload: bytes = b"") -> bytes:
    """Encode one frame. Raises MessageMalformed if it exceeds a limit."""
    packed: bytes
    try:
        packed = msgpack.packb(header)
    except UnicodeEncodeError:  # a path, in an answer or an error, need not be UTF-8
        packed = msgpack.packb(header, unicode_errors="backslashreplace")
    length = 2 + len(packed) + len(payload)
    if len(packed) > MAX_HEADER_BYTES:
        raise MessageMalformed(f"a header of {len(packed)} bytes; the limit is {MAX_HEADER_BYTES}")
    if length > MAX_FRAME_BYTES:
        raise MessageMalformed(f"a frame of {length} bytes; the limit is {MAX_FRAME_BYTES}")
    return b"".join((_LENGTHS.pack(length, len(packed)), packed, payload))


def shown(value: object) -> str:
    """Show a received value in an error message, shortened."""
    if isinstance(value, str | bytes):
        return repr(value[:_SHOWN_CHARACTERS])
    if value is None or isinstance(value, int | float):
        return repr(value)
    return f"a {type(value).__name__}"


def is_http_request(begins: bytes | bytearray) -> bool:
    return begins[:4] in _HTTP_REQUESTS


class HttpSpoken(MessageMalformed):
    """The other side sends a request of HTTP, and understands HTTP_ANSWER."""


class FrameDecoder:
    """Cuts a byte stream into frames. After an error the stream must be closed.

    Args:
        max_bytes: see below.
        max_frames: the most frames that one `feed` returns.

    Attributes:
        max_bytes: the longest accepted frame; it is smaller before the caller is welcomed.
        has_more: whether the fed bytes may hold more frames.
    """

    __slots__ = ("_buffer", "_max_frames", "has_more", "max_bytes")

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES, max_frames: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max_frames = max_frames
        self.max_bytes = max_bytes
        self.has_more = False

    def feed(self, data: bytes = b"") -> list[Frame]:
        """Add `data`, and return the frames that it completes, up to `max_frames`.

        Raises MessageMalformed on a length over the limit or a header that is not a msgpack array.
        """
        if self._buffer:
            self._buffer += data
            source: bytes = bytes(self._buffer) if self._complete() else b""
        else:
            source = data
        if not source:
            return []
        frames, consumed = self._cut(source)
        self.has_more = len(frames) == self._max_frames
        self._buffer = bytearray(source[consumed:])
        return frames

    def _complete(self) -> bool:
        """Return whether the buffer holds a whole frame or a bad length."""
        if len(self._buffer) < _LENGTH_BYTES:
            return False
        length = int.from_bytes(self._buffer[:_LENGTH_BYTES], "big")
        return length > self.max_bytes or len(self._buffer) >= _LENGTH_BYTES + length

    def _cut(self, source: bytes) -> tuple[list[Frame], int]:
        frames: list[Frame] = []
        at, end, max_bytes = 0, len(source), self.max_bytes
        while end - at >= _LENGTH_BYTES and len(frames) < self._max_frames:
            length = int.from_bytes(source[at : at + _LENGTH_BYTES], "big")
            if length > max_bytes:
                raise _oversized(source[at : at + _LENGTH_BYTES], length, max_bytes)
            frame_end = at + _LENGTH_BYTES + length
            if frame_end > end:
                break
            frames.append(_decode(source, at, frame_end))
            at = frame_end
        return frames, at


def _oversized(begins: bytes, length: int, max_bytes: int) -> MessageMalformed:
    """Return the error of a stream that begins with too long a frame."""
    if begins.startswith(_TLS):
        return MessageMalformed(
            "the other side speaks TLS and this one does not: "
            "give certificates to every member of the group, or to none"
        )
    is_request = is_http_request(begins)
    if (other := "HTTP" if is_request else _OTHERS.get(begins)) is not None:
        problem = (
            f"the other side speaks {other}, and this is the port of the log: look at its address"
        )
        return HttpSpoken(problem) if is_request else MessageMalformed(problem)
    return MessageMalformed(
        f"a frame of {length} bytes; the limit is {max_bytes}: is this a dledger peer?"
    )


# msgpack limits an array's length to the length of its input. That is enough for headers up to
# this length: with every level of nesting that fits they allocate 3 MB. Explicit limits would cost
# a quarter of the time that most headers take.
_SHORT = 1_000
_unpacked = msgpack.unpackb
_LIMITS = {
    "max_array_len": MAX_HEADER_ELEMENTS,
    "max_map_len": MAX_HEADER_KEYS,
    "max_ext_len": 0,  # only msgpack's plain types are used
}


def _decode(source: bytes, at: int, frame_end: int) -> Frame:
    if frame_end - at < _LENGTHS.size:
        raise MessageMalformed("a frame without a header")
    _, header_bytes = _LENGTHS.unpack_from(source, at)
    start = at + _LENGTHS.size
    payload_start = start + header_bytes
    if payload_start > frame_end or header_bytes > MAX_HEADER_BYTES:
        raise MessageMalformed("a header longer than its frame")
    try:
        packed = source[start:payload_start]
        header = msgpack.unpackb(packed, **_LIMITS) if header_bytes > _SHORT else _unpacked(packed)
    except (ValueError, msgpack.UnpackException) as error:
        if source[at + _ROCKETMQ_AT :].startswith(_ROCKETMQ):
            raise MessageMalformed(
                "the other side is a client of RocketMQ, and this is the port of the log: give it "
                "a broker's --listen"
            ) from None
        raise MessageMalformed(f"a header that is not msgpack ({type(error).__name__})") from error
    if not isinstance(header, list) or not header:
        raise MessageMalformed("a header that is not an array")
    return Frame(header, source[payload_start:frame_end])
