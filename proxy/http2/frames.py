"""The frames of HTTP/2: types, flags, codes and bytes (RFC 9113, sections 4, 6 and 7). Pure."""

import struct
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# Length (24 bits, here 16 and 8), type, flags, stream.
FRAME_HEADER: Final = struct.Struct(">HBBBI")
HEADER_BYTES: Final = 9
STREAM_MASK: Final = 0x7FFF_FFFF
MOST_WINDOW_BYTES: Final = (1 << 31) - 1
FIRST_WINDOW_BYTES: Final = 65535
LEAST_FRAME_BYTES: Final = 1 << 14
MOST_FRAME_BYTES: Final = (1 << 24) - 1


class FrameType(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


# Flags, as plain numbers: they are looked at for each frame.
END_STREAM: Final = 0x01
ACK: Final = 0x01
END_HEADERS: Final = 0x04
PADDED: Final = 0x08
PRIORITY: Final = 0x20


class ErrorCode(IntEnum):
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


def frame_header(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    return FRAME_HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return frame_header(len(payload), kind, flags, stream_id) + payload


def settings_frame(settings: dict[int, int]) -> bytes:
    payload = b"".join([struct.pack(">HI", *each) for each in settings.items()])
    return frame(FrameType.SETTINGS, 0, 0, payload)


def reset_frame(stream_id: int, code: int) -> bytes:
    return frame(FrameType.RST_STREAM, 0, stream_id, code.to_bytes(4))


def window_update_frame(stream_id: int, count: int) -> bytes:
    return frame(FrameType.WINDOW_UPDATE, 0, stream_id, count.to_bytes(4))


def goaway_frame(last_stream_id: int, code: int, text: str = "") -> bytes:
    return frame(FrameType.GOAWAY, 0, 0, struct.pack(">II", last_stream_id, code) + text.encode())
