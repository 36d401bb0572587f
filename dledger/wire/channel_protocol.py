"""Channels: the members of many groups exchange their messages over one connection.

The side that dialled numbers its channels, and opens each one with a frame that names group, sender
and receiver. The other side answers that the channel is open, or refuses it with a reason. Every
message carries the number of its channel. Either side may end a channel; the connection and its
other channels stay.

========================================================= ==================================
 frame                                                     from
========================================================= ==================================
 ["open", channel, group, sender, receiver, ...identity]   the caller
 ["opened", channel]                                       the called side
 ["refused", channel, reason]                              the called side, at once or at any
                                                           later time
 ["close", channel]                                        the caller
========================================================= ==================================

The identity is four fields: the number and the mark of the generation, the sum of the first voters,
and the birth (`dledger.wire.group_identity`). A caller that has learned the birth of its group
opens its channels again under the same numbers: messages go on meanwhile, and the called side
checks the identity again.

Before it opens a channel, a caller whose state machine has a kind sends it in the frame
[-1, channel, name, version, whether it has stopped]. The first element is in the place of the
number that holds a message's channel and kind. No channel has that number, so members that do not
know the frame drop it like messages of a closed channel. Later elements are reserved.

In the same way a caller sends [-2, channel, process, first, last]: the number that its process drew
at its start, and the committed entries that its group lost (-1 and -1 for none).
"""

from __future__ import annotations

from typing import NamedTuple

from dledger.core.membership.configuration import MAX_ID_CHARACTERS
from dledger.core.orphans import Orphans
from dledger.errors import MessageMalformed
from dledger.machine_kind import MAX_MACHINE_NAME_CHARACTERS, UNKNOWN_MACHINE, MachineKind
from dledger.wire.frame import Frame, encode_frame, shown
from dledger.wire.group_identity import (
    UNKNOWN_GROUP,
    GroupIdentity,
    decode_identity,
    identity_fields,
)

# Channels are numbered from 0; no process opens this many in its life.
_MAX_CHANNEL = 2**48

# A longer reason from the other side is cut to this length.
_MAX_REASON_CHARACTERS = 500

# The first element of the frame with the kind of the caller's state machine.
MACHINE_KIND = -1

# The first element of the frame about the caller's process and folder.
ABOUT_ITSELF = -2

_MAX_VERSION = 2**31 - 1

# The number of a process is drawn below this: a float between 0 and 1 has only 53 bits.
MAX_PROCESS = 2**52

_MAX_INDEX = 2**62

_OPEN, _OPENED, _REFUSED, _CLOSE = "open", "opened", "refused", "close"


class Opening(NamedTuple):
    """A request to open a channel: the group, the sender and the receiver."""

    channel: int
    group: str
    sender: str
    receiver: str
    identity: GroupIdentity = UNKNOWN_GROUP


class Closing(NamedTuple):
    channel: int


class Answer(NamedTuple):
    """The called side's answer about a channel: it is open, or refused with a reason."""

    channel: int
    refusal: str | None


def encode_opening(opening: Opening) -> bytes:
    """Encode the frame that opens a channel, after the frames that describe the caller."""
    frame = encode_frame([_OPEN, *opening[:4], *identity_fields(opening.identity)])
    machine, process, orphans = opening.identity[3:]
    if process or orphans is not None:
        named = (-1, -1) if orphans is None else orphans
        frame = encode_frame([ABOUT_ITSELF, opening.channel, process, *named]) + frame
    if machine != UNKNOWN_MACHINE:
        frame = encode_frame([MACHINE_KIND, opening.channel, *machine]) + frame
    return frame


def encode_closing(channel: int) -> bytes:
    return encode_frame([_CLOSE, channel])


def encode_opened(channel: int) -> bytes:
    return encode_frame([_OPENED, channel])


def encode_channel_refused(channel: int, reason: str) -> bytes:
    """Encode the answer that a channel is refused, or no longer open."""
    return encode_frame([_REFUSED, channel, reason])


def decode_call(frame: Frame) -> Opening | Closing:
    """Decode a caller's frame about a channel. Raises MessageMalformed."""
    match frame.header:
        case ["open", channel, str(group), str(sender), str(receiver), *identity]:
            if max(map(len, (group, sender, receiver))) > MAX_ID_CHARACTERS:
                raise MessageMalformed(f"a name of more than {MAX_ID_CHARACTERS} characters")
            return Opening(_channel(channel), group, sender, receiver, decode_identity(identity))
        case ["close", channel]:
            return Closing(_channel(channel))
        case _:
            raise MessageMalformed(f"a frame of unknown kind {shown(frame.header[0])}")


def decode_machine_kind(frame: Frame) -> tuple[int, MachineKind]:
    """Decode the number of a channel and the kind of its caller's machine.

    Raises MessageMalformed.
    """
    match frame.header:
        case [_, channel, str(name), int(version), bool(is_stopped), *_] if (
            type(version) is int
            and 0 <= version <= _MAX_VERSION
            and len(name) <= MAX_MACHINE_NAME_CHARACTERS
        ):
            return _channel(channel), MachineKind(name, version, is_stopped)
        case _:
            raise MessageMalformed("the kind of a state machine with wrong fields")


def decode_about_itself(frame: Frame) -> tuple[int, int, Orphans | None]:
    """Decode the number of a channel, that of its caller's process, and the caller's orphans.

    Raises MessageMalformed.
    """
    match frame.header:
        case [_, channel, int(process), int(first), int(last), *_] if (
            type(process) is type(first) is type(last) is int
            and 0 <= process < MAX_PROCESS
            and -1 <= first <= last < _MAX_INDEX
        ):
            orphans = None if first < 0 else Orphans(first, last)
            return _channel(channel), process, orphans
        case _:
            raise MessageMalformed("what a member tells of itself, with wrong fields")


def decode_channel_answer(frame: Frame) -> Answer:
    """Decode the called side's frame about a channel. Raises MessageMalformed."""
    match frame.header:
        case ["opened", channel]:
            return Answer(_channel(channel), None)
        case ["refused", channel, str(reason)]:
            return Answer(_channel(channel), reason[:_MAX_REASON_CHARACTERS])
        case _:
            raise MessageMalformed(f"an answer of unknown kind {shown(frame.header[0])}")


def _channel(field: object) -> int:
    if type(field) is not int or not 0 <= field < _MAX_CHANNEL:
        raise MessageMalformed(f"{shown(field)} is not a channel number")
    return field
