"""The light client of gRPC."""

from __future__ import annotations

from bench.http2_client import Requests, message_bytes


def test_only_messages_take_room_of_a_window() -> None:
    """RFC 9113, section 5.2.1: a server gives room for what came in frames of data."""
    made = Requests(is_huffman=False)
    frames = made.frames("/service/Method", b"x" * 100) + made.frames("/service/Method", b"")
    opened = made.frames("/service/Method", None) + made.message(5, b"yy")
    assert message_bytes(frames) == 105 + 5  # each message has a prefix of 5 bytes
    assert message_bytes(opened) == 7
    assert message_bytes(b"") == 0
