"""Fields become values of a type, or are refused."""

import pytest

from remoting.bodies.json_object import JsonObject
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed, FieldMissing
from remoting.wire.field_values import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    is_name,
    read_int32,
    read_int64,
    read_natural,
    saturated_int32,
)

NO_NUMBERS = (
    *("", " ", "-", "--1", "+5", " 12", "12 ", "1_000", "1e3", "1.0", "0x10", "NaN", "null", "1\n"),
    *("\u0661\u0662", "\uff11", "\u00b2", "12\u00a0", "\u2212" + "1", "1\0", "9" * 21, "9" * 5000),
)


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number_is_refused_wherever_it_stands(text: str) -> None:
    assert (read_int64(text), read_int32(text), read_natural(text)) == (None, None, None)
    if text:
        for read in (Command(0, {"n": text}).integer, Command(0, {"n": text}).int32):
            with pytest.raises(FieldMissing):
                read("n", 0)
    with pytest.raises(BodyMalformed):
        JsonObject("body", {"n": text}).integer("n")


@pytest.mark.parametrize(
    ("text", "int64", "int32"),
    [
        ("0", 0, 0),
        ("-0", 0, 0),
        ("007", 7, 7),
        (str(INT32_MAX), INT32_MAX, INT32_MAX),
        (str(INT32_MIN), INT32_MIN, INT32_MIN),
        (str(INT32_MAX + 1), INT32_MAX + 1, None),
        (str(INT32_MIN - 1), INT32_MIN - 1, None),
        (str(1 << 32), 1 << 32, None),
        (str(INT64_MAX), INT64_MAX, None),
        (str(INT64_MIN), INT64_MIN, None),
        (str(INT64_MAX + 1), None, None),
        (str(INT64_MIN - 1), None, None),
    ],
)
def test_a_number_is_as_wide_as_its_type(text: str, int64: int | None, int32: int | None) -> None:
    assert (read_int64(text), read_int32(text)) == (int64, int32)
    command = Command(0, {"n": text})
    if int32 is None:
        with pytest.raises(FieldMissing):
            command.int32("n")
    else:
        assert command.int32("n") == command.integer("n") == int32


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\0", "\x1b[2J", "\u202egpj", "x" * 256])
def test_a_name_is_short_and_printable(text: str) -> None:
    assert not is_name(text)
    with pytest.raises(FieldMissing):
        Command(0, {"group": text}).name("group")
    with pytest.raises(BodyMalformed):
        JsonObject("body", {"group": text}).name("group")
    assert Command(0, {"group": "x" * 255}).name("group") == "x" * 255


@pytest.mark.parametrize(
    ("number", "kept"),
    [(-(1 << 31), 0), (-1, 0), (0, 0), (INT32_MAX, INT32_MAX), (INT32_MAX + 1, INT32_MAX)],
)
def test_a_count_stays_at_the_end_of_its_range(number: int, kept: int) -> None:
    assert saturated_int32(number) == kept
