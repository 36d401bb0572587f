"""The messages between clients and members: msgpack objects, one after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from dledger.declared_error import DeclaredError
from jepsen_like.chaos.outcomes import Outcome
from jepsen_like.chaos.service import Call
from jepsen_like.history.operation import EventType
from jepsen_like.history.value import frozen, thawed

# Far more than a read of a whole set; a peer that sends more is not ours.
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
PIECE_BYTES = 64 * 1024


class WireBroken(DeclaredError):
    """The other side sent bytes that are not a message."""

    problem: str


class Messages:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker(max_buffer_size=MESSAGE_BYTES_MAX)

    def feed(self, piece: bytes) -> None:
        self._unpacker.feed(piece)

    def next(self) -> dict[str, Any] | None:
        """Return the next whole message; None if it has not arrived. Raises WireBroken."""
        try:
            message = next(self._unpacker, None)
        except (ValueError, msgpack.exceptions.UnpackException) as error:
            raise WireBroken(f"not msgpack: {error}") from error
        if message is not None and not isinstance(message, dict):
            raise WireBroken(f"a {type(message).__name__} where a message was due")
        return message


def call_message(call: Call, *, in_session: bool) -> bytes:
    """Return a call as a client sends it to a member."""
    fields: dict[str, object] = {
        "function": call.function,
        "key": thawed(call.key),
        "value": thawed(call.value),
        "is_read": call.is_read,
        "in_session": in_session,
    }
    if not call.is_read:
        fields["body"] = call.entry
    packed: bytes = msgpack.packb(fields)
    return packed


def parse_call(message: Mapping[str, Any]) -> tuple[Call, bool]:
    """Return a call, and whether it is to be made in the session of the connection."""
    try:
        call = Call(
            str(message["function"]),
            frozen(message["key"]),
            frozen(message["value"]),
            message.get("body"),
            bool(message["is_read"]),
        )
        return call, bool(message["in_session"])
    except (KeyError, ValueError) as error:
        raise WireBroken(f"not a call: {error}") from error


def outcome_message(outcome: Outcome, leader: str | None) -> bytes:
    """Return an outcome as a member sends it, with the leader if it is known."""
    fields = {
        "type": outcome.type.value,
        "value": thawed(outcome.value),
        "error": outcome.error,
        "leader": leader,
    }
    packed: bytes = msgpack.packb(fields)
    return packed


def parse_outcome(message: Mapping[str, Any]) -> tuple[Outcome, str | None]:
    """Return an outcome, and the leader that the member knows. Raises WireBroken."""
    try:
        outcome = Outcome(EventType(message["type"]), message["value"], message["error"])
        return outcome, message["leader"]
    except (KeyError, ValueError) as error:
        raise WireBroken(f"not an outcome: {error}") from error
