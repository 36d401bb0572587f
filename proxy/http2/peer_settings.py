"""The settings of a peer (RFC 9113, section 6.5.2). Pure."""

import struct
from dataclasses import dataclass

from proxy.http2.errors import ConnectionFault
from proxy.http2.field_decoder import TABLE_BYTES
from proxy.http2.frames import (
    FIRST_WINDOW_BYTES,
    LEAST_FRAME_BYTES,
    MOST_FRAME_BYTES,
    MOST_WINDOW_BYTES,
    ErrorCode,
    Setting,
)


@dataclass(slots=True)
class PeerSettings:
    """What a peer has set, or what HTTP/2 begins with. It does without pushes, as we never push."""

    header_table_bytes: int = TABLE_BYTES
    window_bytes: int = FIRST_WINDOW_BYTES
    frame_bytes: int = LEAST_FRAME_BYTES

    def take(self, payload: bytes) -> None:
        """Take a frame of settings. Raises ConnectionFault."""
        if len(payload) % 6:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "settings of no whole length")
        for name, value in struct.iter_unpack(">HI", payload):
            if name == Setting.INITIAL_WINDOW_SIZE:
                if value > MOST_WINDOW_BYTES:
                    raise ConnectionFault(
                        ErrorCode.FLOW_CONTROL_ERROR, f"settings with a window of {value} bytes"
                    )
                self.window_bytes = value
            elif name == Setting.MAX_FRAME_SIZE:
                if not LEAST_FRAME_BYTES <= value <= MOST_FRAME_BYTES:
                    raise _refused(f"frames of {value} bytes")
                self.frame_bytes = value
            elif name == Setting.ENABLE_PUSH and value > 1:
                raise _refused(f"a push of {value}")
            elif name == Setting.HEADER_TABLE_SIZE:
                self.header_table_bytes = value


def _refused(what: str) -> ConnectionFault:
    return ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"settings with {what}")
