"""Channels: what the members of many groups say to each other goes over one connection.

The side that dialled numbers its channels, and opens each by a frame that names group, sender and
receiver. The other side answers that the channel is open, or why not. Every message carries the
number of its channel. Either side may end a channel; the connection goes on with the others.

========================================================= ==================================
 frame                                                     from
========================================================= ==================================
 ["open", channel, group, sender, receiver, ...identity]   the caller
 ["opened", channel]                                       the called
 ["refused", channel, reason]                              the called, at once or at any time
                                                           later
 ["close", channel]                                        the caller
========================================================= ==================================

The identity is four fields: the number and the mark of the generation, the sum of the first voters,
the birth (`dledger.wire.group_identity`). A caller that has learnt the birth of its group opens its
channels once more, under their numbers: messages go on meanwhile, and the called side judges again.
"""

from __future__ import annotations

from typing import NamedTuple

from dledger.core.membership.configuration import MAX_ID_CHARACTERS
from dledger.errors import MessageMalformed
from dledger.wire.frame import Frame, encode_frame, shown
from dledger.wire.group_identity import (
    UNKNOWN_GROUP,
    GroupIdentity,
    decode_identity,
    identity_fields,
)

# Channels are counted up from 0; no process opens more in its life.
_MAX_CHANNEL = 2**48

# Of a reason that the other side gives, so much is kept.
_MAX_REASON_CHARACTERS = 500

_OPEN, _OPENED, _REFUSED, _CLOSE = "open", "opened", "refused", "close"


class Opening(NamedTuple):
    """Who wants to talk to whom, in which group."""

    channel: int
    group: str
    sender: str
    receiver: str
    identity: GroupIdentity = UNKNOWN_GROUP


class Closing(NamedTuple):
    """The caller needs that channel no more."""

    channel: int


class Answer(NamedTuple):
    """What the called side says of a channel: it is open, or (with a reason) it is not."""

    channel: int
    refusal: str | None


def encode_opening(opening: Opening) -> bytes:
    """The frame that opens a channel."""
    return encode_frame([_OPEN, *opening[:4], *identity_fields(opening.identity)])


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
        case ["open", channel, str(group), str(sender), str(receiver), *identity]:
            if max(map(len, (group, sender, receiver))) > MAX_ID_CHARACTERS:
                raise MessageMalformed(f"a name of more than {MAX_ID_CHARACTERS} characters")
            return Opening(_channel(channel), group, sender, receiver, decode_identity(identity))
        case ["close", channel]:
            return Closing(_channel(channel))
        case _:
            raise MessageMalformed(f"a frame of unknown kind {shown(frame.header[0])}")


def decode_channel_answer(frame: Frame) -> Answer:
    """What the called side says of a channel. Raises MessageMalformed."""
    match frame.header:
        case ["opened", channel]:
            return Answer(_channel(channel), None)
        case ["refused", channel, str(reason)]:
            return Answer(_channel(channel), reason[:_MAX_REASON_CHARACTERS])
        case _:
            raise MessageMalformed(f"an answer of unknown kind {shown(frame.header[0])}")


def _channel(field: object) -> int:
    if type(field) is not int or not 0 <= field < _MAX_CHANNEL:
        raise MessageMalformed(f"{shown(field)} where the number of a channel belongs")
    return field
