"""Commands are written and read by their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.log.command_layout import Added, CommandLayout, Implied, Natural

MEMBERS = ["T", 7, [1, 2], [["g", 3]], [["a", None]], None, 5]


class Place(NamedTuple):
    group: str
    offset: Natural


@dataclass(frozen=True)
class Everything:
    kind: ClassVar[int] = 99
    since: ClassVar[int] = 2

    topic: str
    at_ms: Natural
    queues: tuple[int, ...]
    places: Sequence[Place]
    values: Mapping[str, str | None]
    attempt: str | None
    limit: Annotated[int | None, Added(4)] = None
    is_late: Annotated[bool, Implied(5)] = False


LAYOUT = CommandLayout(Everything)
VALUE = Everything("T", 7, (1, 2), [Place("g", 3)], {"a": None}, None, 5)


def test_each_kind_of_field_has_its_form() -> None:
    assert LAYOUT.read(4, MEMBERS) == VALUE
    assert LAYOUT.version(VALUE) == 4
    assert LAYOUT.members(VALUE, 4) == ["T", 7, (1, 2), [("g", 3)], [["a", None]], None, 5]


def test_a_command_is_of_the_first_version_that_has_what_it_says() -> None:
    early = Everything("T", 7, (), [], {}, "x")
    late = Everything("T", 7, (), [], {}, "x", 9, is_late=True)
    assert [LAYOUT.version(one) for one in (early, VALUE, late)] == [2, 4, 5]
    assert LAYOUT.read(2, LAYOUT.members(early, 2)) == early
    assert LAYOUT.read(5, LAYOUT.members(late, 5)) == late


@pytest.mark.parametrize(
    ("at", "value"),
    [
        *((0, 1), (0, None), (1, -1), (1, 1 << 63), (1, "7"), (2, ["x"]), (2, 5), (3, [["g"]])),
        *((3, [["g", -1]]), (3, [["g", 1, 2]]), (3, [[1, 1]]), (4, [["a"]]), (4, [["a", 1]])),
        *((4, 7), (5, 7), (6, None), (6, "5")),
    ],
)
def test_a_member_of_another_form_is_refused(at: int, value: Any) -> None:
    members = [*MEMBERS[:at], value, *MEMBERS[at + 1 :]]
    with pytest.raises((TypeError, ValueError)):
        LAYOUT.read(4, members)


@given(st.integers(2, 6), st.lists(st.sampled_from(MEMBERS), max_size=9))
def test_any_members_are_a_command_or_refused(version: int, members: list[Any]) -> None:
    try:
        command = LAYOUT.read(version, members)
    except (TypeError, ValueError):
        return
    assert len(members) == (6 if version < 4 else 7)
    assert LAYOUT.read(version, LAYOUT.members(command, version)) == command


def test_a_type_without_a_form_is_found_when_the_program_starts() -> None:
    @dataclass(frozen=True)
    class Wrong:
        kind: ClassVar[int] = 98

        seconds: float

    with pytest.raises(TypeError, match="cannot have a field of type"):
        CommandLayout(Wrong)
