"""Checks bodies before a node accepts them: an invalid one would end the node."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from dledger.entry import Body, PositionedBody, PositionedParts, body_bytes
from dledger.errors import BodyInvalid

_REMEDIES: dict[type, str] = {
    str: "encode the text: text.encode()",
    bytearray: "it may change after the call: give bytes(body)",
    memoryview: "it may change after the call: give bytes(body)",
}


def checked_body_bytes(body: Body) -> int:
    """Check one body; return its length. Raises BodyInvalid."""
    if type(body) is bytes:
        return len(body)
    _check({type(body)}, (body,), positioned=True)
    return body_bytes(body)


def checked_lengths(bodies: Sequence[Body], *, positioned: bool = True) -> list[int]:
    """Check many bodies; return their lengths. `positioned`: whether they may hold positions.

    Raises BodyInvalid, also if `bodies` is not a sequence.
    """
    try:
        kinds = set(map(type, bodies))
        len(bodies)
    except TypeError:
        kind = type(bodies).__name__
        raise BodyInvalid(f"bodies are a sequence, not {kind}: give a list of them") from None
    if kinds <= {bytes}:
        return list(map(len, bodies))
    _check(kinds, bodies, positioned)
    return list(map(body_bytes, bodies))


def _check(kinds: set[type], bodies: Sequence[Body], positioned: bool) -> None:
    for kind in kinds:
        if issubclass(kind, PositionedBody) and positioned:
            placed = [body for body in bodies if isinstance(body, PositionedBody)]
            _check(set(map(type, chain.from_iterable(placed))), (), positioned=False)
        elif issubclass(kind, PositionedParts) and positioned:
            for body in bodies:
                if isinstance(body, PositionedParts):
                    _check_parts(body.parts)
        elif not issubclass(kind, bytes):
            remedy = _REMEDIES.get(kind, "encode it")
            raise BodyInvalid(f"a body is bytes, not {kind.__name__}: {remedy}")


def _check_parts(parts: tuple[PositionedBody, ...]) -> None:
    if not isinstance(parts, tuple):
        kind = type(parts).__name__
        raise BodyInvalid(f"the parts of a body are a tuple, not {kind}: it may change later")
    if not parts:
        raise BodyInvalid("a body has no parts: give at least one")
    for kind_of_part in set(map(type, parts)):
        if not issubclass(kind_of_part, PositionedBody):
            name = kind_of_part.__name__
            raise BodyInvalid(f"a part is a PositionedBody, not {name}: give PositionedBody(...)")
    if set(map(type, chain.from_iterable(parts))) != {bytes}:
        _check({PositionedBody}, parts, positioned=True)
