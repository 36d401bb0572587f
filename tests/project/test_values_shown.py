"""The `repr` of every public value is short, whatever a user's body or result holds."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Any, NamedTuple

import dledger
import dledger.machines
import dledger_mq
from dledger.short_repr import REPR_CHARACTERS, short_repr
from tests.project.example_values import example_of

CONTENT_CHARACTERS = 100_000

# They hold what users send or what their machines answer, whose length no name's limit bounds.
CONTENT = (bytes, object, Any)


def public_values() -> Iterator[type]:
    """Dataclasses, named tuples and whatever else has a `repr` of its own."""
    for module in (dledger, dledger.machines, dledger_mq):
        for name in module.__all__:
            kind = getattr(module, name)
            if not inspect.isclass(kind) or issubclass(kind, BaseException | Enum):
                continue
            if kind.__repr__ is not object.__repr__ and kind.__repr__ is not type.__repr__:
                yield kind


def holds_content(hint: Any) -> bool:
    """Whether objects of a type hold bytes or any object, at any depth."""
    if hint in CONTENT:
        return True
    if arguments := typing.get_args(hint):
        return any(holds_content(each) for each in arguments)
    if not inspect.isclass(hint) or hint.__module__.partition(".")[0] in ("builtins", "typing"):
        return False
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return any(holds_content(each) for each in typing.get_type_hints(hint).values())
    return "body" in dir(hint)


def test_every_value_that_holds_a_body_or_a_result_is_shown_in_two_lines() -> None:
    found, problems = set(), []
    for kind in public_values():
        if holds_content(kind):
            found.add(kind.__name__)
            shown = repr(example_of(kind, CONTENT_CHARACTERS))
            if len(shown) > REPR_CHARACTERS or not shown.startswith(f"{kind.__name__}("):
                problems.append(f"{kind.__name__}: {len(shown)} characters: {shown[:80]}")
    assert not problems, "\n".join(problems)
    assert found >= {
        *("Appended", "Entry", "Message", "PositionedBody", "PositionedParts"),
        *("PullResult", "ReceivedMessage", "SessionAppended"),
    }


def test_a_long_result_is_shown_by_its_beginning() -> None:
    for result in (
        "t" * CONTENT_CHARACTERS,
        b"b" * CONTENT_CHARACTERS,
        ["t" * CONTENT_CHARACTERS] * 10_000,
        10**4000,
    ):
        assert len(repr(dledger.Appended(1, 2, 3, result))) <= REPR_CHARACTERS


class Pair(NamedTuple):
    name: str
    body: bytes

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(slots=True)
class Held:
    pair: Pair
    number: int = 3

    def __repr__(self) -> str:
        return short_repr(self)


def test_short_contents_are_shown_as_python_shows_them() -> None:
    assert repr(Held(Pair("n", b"\x00b"))) == r"Held(pair=Pair(name='n', body=b'\x00b'), number=3)"


def test_long_contents_are_shown_with_their_size() -> None:
    assert repr(Pair("n" * 50, b"b" * 50)) == (
        f"Pair(name='{'n' * 40}'... (50 characters), body=b'{'b' * 16}'... (50 bytes))"
    )
