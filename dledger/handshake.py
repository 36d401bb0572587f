"""The first frame on a connection: who calls, whom they want, and in which group."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dledger.codec import PROTOCOL_VERSION
from dledger.errors import MessageMalformed
from dledger.frame import Frame, encode_frame

_HELLO, _WELCOME, _REFUSED = "hello", "welcome", "refused"


class Caller(StrEnum):
    """What kind of conversation follows."""

    PEER = "peer"
    CLIENT = "client"


class Hello(NamedTuple):
    """The caller's introduction. A client leaves `sender` empty, and may leave `receiver` so."""

    caller: Caller
    group: str
    sender: str
    receiver: str


def encode_hello(hello: Hello) -> bytes:
    """The first frame of a connection."""
    return encode_frame([_HELLO, PROTOCOL_VERSION, *map(str, hello)])


def decode_hello(frame: Frame) -> Hello:
    """The introduction in a first frame. Raises MessageMalformed."""
    header = frame.header
    if header[0] != _HELLO or len(header) != 6 or not all(isinstance(x, str) for x in header[2:]):
        raise MessageMalformed("the first frame is not a hello: is this a dledger peer?")
    if header[1] != PROTOCOL_VERSION:
        raise MessageMalformed(f"protocol version {header[1]!r}; this node speaks 1")
    caller, group, sender, receiver = (str(part) for part in header[2:])
    if caller not in tuple(Caller):
        raise MessageMalformed(f"a caller of unknown kind {caller!r}")
    return Hello(Caller(caller), group, sender, receiver)


def refusal(hello: Hello, group: str, node_id: str, members: frozenset[str]) -> str | None:
    """Why this node does not talk to that caller, or None if it does."""
    if hello.group != group:
        return f"this is a node of group {group}, not of {hello.group}"
    if hello.receiver and hello.receiver != node_id:
        return f"this is node {node_id}, not {hello.receiver}"
    if hello.caller is Caller.PEER and (hello.sender not in members or hello.sender == node_id):
        return f"{hello.sender} is not another member of group {group}"
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
