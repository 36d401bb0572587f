"""Channels: what the members of many groups say to each other goes over one connection.

The side that dialled numbers its channels, and opens each by a frame that names group, sender and
receiver. The other side answers that the channel is open, or why not. Every message carries the
number of its channel. Either side may end a channel; the connection goes on with the others.

============================================= ==============================================
 frame                                         from
============================================= ==============================================
 ["open", channel, group, sender, receiver]    the caller
 ["opened", channel]                           the called
 ["refused", channel, reason]                  the called, at once or at any time later
 ["close", channel]                            the caller
============================================= ==============================================
"""

from __future__ import annotations

from typing import NamedTuple

from dledger.errors import MessageMalformed
from dledger.frame import Frame, encode_frame

_OPEN, _OPENED, _REFUSED, _CLOSE = "open", "opened", "refused", "close"


class Opening(NamedTuple):
    """Who wants to talk to whom."""

    channel: int
    group: str
    sender: str
    receiver: str


class Closing(NamedTuple):
    """The caller needs that channel no more."""

    channel: int


class Answer(NamedTuple):
    """What the called side says of a channel: it is open, or (with a reason) it is not."""

    channel: int
    refusal: str | None


def encode_opening(opening: Opening) -> bytes:
    """The frame that opens a channel."""
    return encode_frame([_OPEN, *opening])


def encode_closing(channel: int) -> bytes:
    """The frame that ends one."""
    return encode_frame([_CLOSE, channel])


def encode_opened(channel: int) -> bytes:
    """The answer that it is open."""
    return encode_frame([_OPENED, channel])


def encode_channel_refused(channel: int, reason: str) -> bytes:
    """The answer that it is not, or not any more."""
    return encode_frame([_REFUSED, channel, reason])


def decode_call(frame: Frame) -> Opening | Closing:
    """What a caller says of a channel. Raises MessageMalformed."""
    match frame.header:
        case ["open", int(channel), str(group), str(sender), str(receiver)]:
            return Opening(channel, group, sender, receiver)
        case ["close", int(channel)]:
            return Closing(channel)
        case _:
            raise MessageMalformed(f"a frame of unknown kind {frame.header[0]!r}")


def decode_channel_answer(frame: Frame) -> Answer:
    """What the called side says of a channel. Raises MessageMalformed."""
    match frame.header:
        case ["opened", int(channel)]:
            return Answer(channel, None)
        case ["refused", int(channel), str(reason)]:
            return Answer(channel, reason)
        case _:
            raise MessageMalformed(f"an answer of unknown kind {frame.header[0]!r}")
