"""The first frame on a connection: the kind of caller, and the group or member that a client
wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from dledger.config import Address, parse_address
from dledger.core.membership.configuration import MAX_ADDRESS_CHARACTERS, MAX_ID_CHARACTERS
from dledger.errors import ConfigInvalid, MessageMalformed
from dledger.wire.codec import PROTOCOL_VERSION
from dledger.wire.frame import Frame, encode_frame, shown

# A longer reason from the other side is cut to this length.
_MAX_REASON_CHARACTERS = 500

# Many times the longest introduction with the channels that a peer opens. This process buffers at
# most this much for a caller that is not welcomed yet.
MAX_INTRODUCTION_BYTES = 16 * 1024

# The random bytes that a caller has to prove its name with.
CHALLENGE_BYTES = 32

_HELLO, _WELCOME, _REFUSED = "hello", "welcome", "refused"

# A refusal names at most this many groups of the process: enough to see which one was meant.
MOST_GROUPS_NAMED = 3


class Caller(StrEnum):
    PEER = "peer"
    CLIENT = "client"


class Hello(NamedTuple):
    """The caller's introduction.

    A client names the group, and optionally the member (`receiver`). A peer is a process with
    members of any number of groups. It names its own address, so that a process that does not know
    the address yet can answer there. Its channels name their senders and receivers
    (`dledger.wire.channel_protocol`).
    """

    caller: Caller
    group: str = ""
    receiver: str = ""
    address: Address | None = None


def encode_hello(hello: Hello) -> bytes:
    address = str(hello.address) if hello.address is not None else ""
    names = [str(hello.caller), hello.group, hello.receiver, address]
    return encode_frame([_HELLO, PROTOCOL_VERSION, *names])


def decode_hello(frame: Frame) -> Hello:
    """Decode the introduction in a first frame. Raises MessageMalformed."""
    header = frame.header
    if header[0] != _HELLO or len(header) < 2:
        raise MessageMalformed("the first frame is not a hello: is this a dledger peer?")
    if header[1] != PROTOCOL_VERSION:
        raise MessageMalformed(
            f"protocol version {shown(header[1])}; this node speaks {PROTOCOL_VERSION}: "
            "run the same version on both sides"
        )
    if len(header) != 6 or not all(isinstance(part, str) for part in header[2:]):
        raise MessageMalformed("a hello with wrong fields")
    caller, group, receiver, address = (str(part) for part in header[2:])
    if max(len(group), len(receiver)) > MAX_ID_CHARACTERS or len(address) > MAX_ADDRESS_CHARACTERS:
        raise MessageMalformed("a hello with a name or an address that is too long")
    if caller not in tuple(Caller):
        raise MessageMalformed(f"a caller of unknown kind {shown(caller)}")
    if caller == Caller.PEER and not address:
        raise MessageMalformed("a peer without an address")
    return Hello(Caller(caller), group, receiver, _decode_address(address))


def _decode_address(text: str) -> Address | None:
    if not text:
        return None
    try:
        return parse_address("address", text)
    except ConfigInvalid as error:
        raise MessageMalformed(f"a caller with the address {shown(text)}") from error


def encode_welcome(name: str) -> bytes:
    return encode_frame([_WELCOME, name])


class Refused(MessageMalformed):
    """A caller is refused. Raised on both sides.

    Attributes:
        lasting: whether the same caller is refused until a setting changes.
        groups: the groups of the called process, if the caller asked for another one.
        challenge: the caller may prove who it is (`dledger.wire.proof`); b"": it has not; None: it
            is refused for another reason.
    """

    lasting: bool = False
    groups: tuple[str, ...] = ()
    challenge: bytes | None = None


def encode_refused(
    reason: str,
    lasting: bool = False,
    groups: Sequence[str] = (),
    challenge: bytes | None = None,
) -> bytes:
    more: list[object] = [] if challenge is None else [challenge]
    return encode_frame([_REFUSED, reason, lasting, list(groups), *more])


def check_welcome(frame: Frame) -> None:
    """Check that the other side accepted this caller.

    Raises Refused with the other side's reason if it did not, and MessageMalformed.
    """
    match frame.header:
        case ["welcome", *_]:
            return
        case [_]:
            raise Refused("refused: no reason given")
        case [_, str(reason), bool(lasting), list(groups), *more]:
            named = tuple(str(group)[:MAX_ID_CHARACTERS] for group in groups[:MOST_GROUPS_NAMED])
            said = f"refused: {reason[:_MAX_REASON_CHARACTERS]}"
            raise Refused(said, lasting, named, _challenge(more))
        case [_, str(reason), *_]:  # of an earlier version
            raise Refused(f"refused: {reason[:_MAX_REASON_CHARACTERS]}")
        case _:
            raise MessageMalformed("the first answer is not of this protocol")


def _challenge(more: Sequence[object]) -> bytes | None:
    """Return the challenge in a refusal; None if there is none, or another thing in its place."""
    if not more or not isinstance(more[0], bytes) or len(more[0]) not in (0, CHALLENGE_BYTES):
        return None
    return more[0]
