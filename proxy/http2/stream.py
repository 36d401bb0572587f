"""One stream of a connection: what both sides have still to send, and the windows. Pure."""

from collections import deque


class Stream:
    """A stream from its headers to its end. The connection alone changes it.

    Attributes:
        stream_id: odd.
        send_window: what the peer takes; negative after it made its windows smaller.
        receive_window: what the peer may send.
        held_bytes: received, and not yet read.
        unreported_bytes: read, and not yet given back to the peer.
        expected_bytes: of a content-length, less what came; None without one.
        pending: to be sent when windows allow it.
        ending: the block of trailers after these, empty for none; None: the stream goes on.
        has_remote_ended: the peer sends nothing more.
        is_closed: both have ended, or one has reset it.
        stalled_since: when the peer last took `min_taken_bytes` of what is pending.
        taken_bytes: of `pending`, since then.
    """

    __slots__ = (
        "ending",
        "expected_bytes",
        "has_remote_ended",
        "held_bytes",
        "is_closed",
        "pending",
        "receive_window",
        "send_window",
        "stalled_since",
        "stream_id",
        "taken_bytes",
        "unreported_bytes",
    )

    def __init__(self, stream_id: int, send_window: int, receive_window: int) -> None:
        self.stream_id = stream_id
        self.send_window = send_window
        self.receive_window = receive_window
        self.held_bytes = 0
        self.unreported_bytes = 0
        self.expected_bytes: int | None = None
        self.pending: deque[memoryview] | None = None
        self.ending: bytes | None = None
        self.has_remote_ended = False
        self.is_closed = False
        self.stalled_since = 0.0
        self.taken_bytes = 0
