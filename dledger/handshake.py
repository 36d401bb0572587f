"""The first frame on a connection: who calls, whom they want, and in which group."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dledger.codec import PROTOCOL_VERSION
from dledger.config import Address, parse_address
from dledger.errors import ConfigInvalid, MessageMalformed
from dledger.frame import Frame, encode_frame

_HELLO, _WELCOME, _REFUSED = "hello", "welcome", "refused"


class Caller(StrEnum):
    """What kind of conversation follows."""

    PEER = "peer"
    CLIENT = "client"


class Hello(NamedTuple):
    """The caller's introduction. A client leaves `sender` empty, and may leave `receiver` so.

    A peer says where it listens: one that does not know it yet can answer it there.
    """

    caller: Caller
    group: str
    sender: str
    receiver: str
    address: Address | None = None


def encode_hello(hello: Hello) -> bytes:
    """The first frame of a connection."""
    names = map(str, hello[:4])
    address = str(hello.address) if hello.address is not None else ""
    return encode_frame([_HELLO, PROTOCOL_VERSION, *names, address])


def decode_hello(frame: Frame) -> Hello:
    """The introduction in a first frame. Raises MessageMalformed."""
    header = frame.header
    if header[0] != _HELLO or len(header) < 2:
        raise MessageMalformed("the first frame is not a hello: is this a dledger peer?")
    if header[1] != PROTOCOL_VERSION:
        raise MessageMalformed(
            f"protocol version {header[1]!r}; this node speaks {PROTOCOL_VERSION}: "
            "let both run the same version"
        )
    if len(header) != 7 or not all(isinstance(part, str) for part in header[2:]):
        raise MessageMalformed("a hello of another shape")
    caller, group, sender, receiver, address = (str(part) for part in header[2:])
    if caller not in tuple(Caller):
        raise MessageMalformed(f"a caller of unknown kind {caller!r}")
    return Hello(Caller(caller), group, sender, receiver, _decode_address(address))


def _decode_address(text: str) -> Address | None:
    if not text:
        return None
    try:
        return parse_address("address", text)
    except ConfigInvalid as error:
        raise MessageMalformed(f"a caller that listens at {text!r}") from error


def refusal(hello: Hello, group: str, node_id: str) -> str | None:
    """Why this node does not talk to that caller, or None if it does.

    Whether a peer is a member is not asked: a node that joins hears its leader before it knows
    any member, and a leader may not know all members itself. The protocol judges what is said.
    """
    if hello.group != group:
        return f"this is a node of group {group}, not of {hello.group}"
    if hello.receiver and hello.receiver != node_id:
        return f"this is node {node_id}, not {hello.receiver}"
    if hello.caller is Caller.PEER and hello.sender in ("", node_id):
        return f"{hello.sender or 'a nameless caller'} is not another member of group {group}"
    if hello.caller is Caller.PEER and hello.address is None:
        return f"{hello.sender} does not say where it listens"
    return None


def encode_welcome(node_id: str) -> bytes:
    """The answer to a caller that is welcome."""
    return encode_frame([_WELCOME, node_id])


def encode_refused(reason: str) -> bytes:
    """The answer to a caller that is not."""
    return encode_frame([_REFUSED, reason])


def check_welcome(frame: Frame) -> None:
    """Raise MessageMalformed with the other side's reason unless it said welcome."""
    if frame.header[0] == _WELCOME:
        return
    reason = frame.header[1] if len(frame.header) > 1 else "no reason given"
    raise MessageMalformed(f"refused: {reason}")
