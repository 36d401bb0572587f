"""What a hostile client may put where a name, a number or a truth value belongs.

A value is a JSON text, so that it has the type that its text says. The names of members in it begin
with "hostile", which no server reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

# What a field or a member may hold instead.
VALUES: tuple[str, ...] = (
    "null",
    '""',
    '" "',
    '"abc"',
    '"true"',
    '"-1"',
    '"0"',
    '"1.5"',
    '"1e9"',
    '"NaN"',
    '"1_0"',
    '"1_000"',
    '"+5"',
    '" 12 "',
    '"-5"',
    '"\uff11\uff12"',
    '"-2147483648"',
    '"-2147483649"',
    '"\u0661"',
    '"2147483647"',
    '"2147483648"',
    '"9223372036854775807"',
    '"9223372036854775808"',
    '"-9223372036854775808"',
    '"-9223372036854775809"',
    '"' + "9" * 5000 + '"',
    "0",
    "-1",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "9" * 4300,
    "1.5",
    "1e400",
    "NaN",
    "Infinity",
    "-Infinity",
    "true",
    "false",
    "[]",
    "{}",
    "[[]]",
    "[1,2]",
    "[null]",
    '{"hostile":{}}',
    '[[{"hostile":[1]}]]',
    "[" * 200 + "]" * 200,
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\u0000"',
    '"a\\u0000b"',
    '"a\\r\\nb"',
    '"a\\u0001b\\u0002"',
    '"\\u001b[2J"',
    '"\u202e\u0301"',
    '"T%n%s"',
    '"../../etc/passwd"',
    '"a/b"',
    '"%RETRY%"',
    '"%DLQ%%RETRY%g"',
    '"TBW102"',
    '"SCHEDULE_TOPIC_XXXX"',
    '"' + "x" * 128 + '"',
    '"' + "x" * 300_000 + '"',
    '"' + "\\ud83d\\ude00" * 20_000 + '"',
)

# A header may have 512 KiB, so that these fit only into a body.
LONG_VALUES: tuple[str, ...] = (
    '"' + "x" * (1 << 20) + '"',
    "[" + "0," * (1 << 18) + "0]",
    "{" + ",".join(f'"hostile {number}":0' for number in range(20_000)) + "}",
)

# What may stand where a body belongs.
BODIES: tuple[bytes, ...] = (
    b"",
    b"\0",
    b"null",
    b"7",
    b"[]",
    b"{}",
    b'""',
    b'"text"',
    b'{"hostile":',
    b"\xff\xfe\x00",
    b"\xff" * 100,
    b"\x00" * 1000,
    b"[" * 100_000,
    b"{" * 100_000,
    b"{" * 40 + b'"hostile":1' + b"}:1" * 39 + b"}",
    b"{{}:1,{}:2}",
    b'{"hostile":' * 5_000 + b"1" + b"}" * 5_000,
    b"[" + b"[]," * 1_000_000 + b"1]",
    b"x" * 2_000_000,
    b"a=b\n" * 10_000,
    b"\x7f\xff\xff\xff" * 16,
    b"\x00\x00\x00\x16" + b"\0" * 18,
)


def with_each_value_replaced(body: bytes) -> Iterator[bytes]:
    """A JSON body with each of its values, at each depth, hostile in turn, and each member gone."""
    if not body.startswith(b"{"):
        return
    # Stands for the hostile value until the whole is text.
    mark = "the hostile value"

    def marked(value: Any) -> Iterator[Any]:
        yield mark
        if isinstance(value, dict):
            for name, member in value.items():
                for one in marked(member):
                    yield {**value, name: one}
        elif isinstance(value, list):
            for at, member in enumerate(value):
                for one in marked(member):
                    yield [*value[:at], one, *value[at + 1 :]]

    def lacking(value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for name, member in value.items():
                yield {other: one for other, one in value.items() if other != name}
                for one in lacking(member):
                    yield {**value, name: one}
        elif isinstance(value, list):
            for at, member in enumerate(value):
                for one in lacking(member):
                    yield [*value[:at], one, *value[at + 1 :]]

    whole = json.loads(body)
    for one in lacking(whole):
        yield json.dumps(one).encode()
    for one in marked(whole):
        before, after = json.dumps(one).split(f'"{mark}"')
        for value in (*VALUES, *LONG_VALUES):
            yield f"{before}{value}{after}".encode()


def with_each_text_replaced(body: bytes, text: str) -> Iterator[bytes]:
    """A JSON body with each of its values, at each depth, a text in turn."""

    def replaced(value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for name, member in value.items():
                for one in replaced(member):
                    yield {**value, name: one}
        elif isinstance(value, list):
            for at, member in enumerate(value):
                for one in replaced(member):
                    yield [*value[:at], one, *value[at + 1 :]]
        else:
            yield text

    for one in replaced(json.loads(body)):
        yield json.dumps(one, ensure_ascii=False).encode()


def names_in(body: bytes) -> set[str]:
    """The name of each member of a JSON body, at each depth."""
    if not body.startswith(b"{"):
        return set()
    names: set[str] = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            names.update(value)
            for member in value.values():
                look(member)
        elif isinstance(value, list):
            for member in value:
                look(member)

    look(json.loads(body))
    return names
