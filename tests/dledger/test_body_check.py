"""What may be appended, and what is refused before anything of it is let in."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dledger.body_check import checked_body_bytes, checked_lengths
from dledger.entry import Body, PositionedBody, PositionedParts
from dledger.errors import BodyInvalid


class Line(bytes):
    """Bytes of somebody's own kind."""


PLACED = PositionedBody(b"head", b"tail")

ODD = [
    ("text", "not str: encode the text"),
    ({"a": 1}, "not dict"),
    (bytearray(b"a"), "not bytearray: it may change"),
    (memoryview(b"a"), "not memoryview: it may change"),
    (None, "not NoneType"),
    (1, "not int"),
    (PositionedBody("head", b"tail"), "not str"),  # type: ignore[arg-type]
    (PositionedBody(b"head", memoryview(b"tail")), "not memoryview"),  # type: ignore[arg-type]
    (PositionedParts((PLACED, PositionedBody("head", b"tail"))), "not str"),  # type: ignore[arg-type]
    (PositionedParts(()), "at least one"),
    (PositionedParts([PLACED]), "not list"),  # type: ignore[arg-type]
    (PositionedParts((b"a",)), "not bytes: give"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("body", "problem"), ODD)
def test_a_body_that_is_not_bytes_is_refused_alone_and_among_others(
    body: Body, problem: str
) -> None:
    for bodies in ([body], [b"a", body], [PLACED, body]):
        with pytest.raises(BodyInvalid, match=problem):
            checked_lengths(bodies)
    with pytest.raises(BodyInvalid, match=problem):
        checked_body_bytes(body)


@pytest.mark.parametrize("bodies", [b"bytes", "text", 5, None, iter([b"a"])])
def test_what_is_no_sequence_of_bodies_is_refused(bodies: Sequence[Body]) -> None:
    with pytest.raises(BodyInvalid):
        checked_lengths(bodies)


def test_bytes_of_any_kind_and_positioned_bodies_are_measured() -> None:
    assert checked_lengths([]) == []
    assert checked_lengths([b"ab", Line(b"abc"), PLACED]) == [2, 3, 16]
    assert checked_lengths((PLACED, PLACED)) == [16, 16]
    assert checked_lengths((PositionedParts((PLACED, PLACED)),)) == [32]
    assert checked_body_bytes(Line(b"abc")) == 3
    with pytest.raises(BodyInvalid):
        checked_lengths([PLACED], positioned=False)
    with pytest.raises(BodyInvalid):
        checked_lengths([PositionedParts((PLACED,))], positioned=False)
