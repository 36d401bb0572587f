"""Hostile values for each field of each message, by protobuf's descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INT32 = (0, -1, 1, 2**31 - 1, -(2**31))
_INT64 = (0, -1, 1, 2**63 - 1, -(2**63))
_TEXTS = (
    *("", " ", "x", "a b", "\0", "\x01", "\x02", "\n", "%", "|", "||", "*", "\ud7ff", "\U0010ffff"),
    *("A" * 64, "A" * 70_000, "é" * 20_000, "%RETRY%g", "../..", "1 1 1 1 0 broker-a 0 0 0", "-1"),
    *("9" * 5000, "\u202e", "TBW102", "CID_RMQ_SYS_x", "CLIENT_INNER_PRODUCER", "djEgYSBiIDEgMg=="),
)
_BYTES = (b"", b"\0", b"\xff" * 70_000)
_FLOATS = (0.0, -1.0, float("inf"), float("nan"))
_VALUES: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.CPPTYPE_INT32: _INT32,
    FieldDescriptor.CPPTYPE_INT64: _INT64,
    FieldDescriptor.CPPTYPE_ENUM: (0, 1, 2, 5, 99, -1, 2**31 - 1, -(2**31)),
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
    FieldDescriptor.CPPTYPE_STRING: _TEXTS,
    FieldDescriptor.CPPTYPE_FLOAT: _FLOATS,
}
_MANY = 2000

Path = tuple[str, ...]


def paths(descriptor: Any, before: Path = ()) -> Iterator[tuple[Path, FieldDescriptor]]:
    """Each field of a message, and of those in it, by the names on its way."""
    for field in descriptor.fields:
        yield (*before, field.name), field
        inner = field.message_type
        if inner is not None and not inner.GetOptions().map_entry:
            yield from paths(inner, (*before, field.name))


def hostile(template: Message) -> Iterator[tuple[str, Message]]:
    """The template with each of its fields left out, and with each hostile value in it."""
    for path, field in paths(template.DESCRIPTOR):
        shown = ".".join(path)
        without = _copy(template)
        holder = _holder(without, path)
        holder.ClearField(path[-1])
        yield f"{shown} left out", without
        for value in _values(field):
            made = _copy(template)
            _put(_holder(made, path), field, value)
            yield f"{shown}={value!r:.40}", made


def _copy(template: Message) -> Message:
    made = type(template)()
    made.CopyFrom(template)
    return made


def _holder(made: Message, path: Path) -> Any:
    """The message that has a field; the first one of a list, which is made if it is empty."""
    found: Any = made
    for name in path[:-1]:
        inner = getattr(found, name)
        if hasattr(inner, "add"):
            found = inner[0] if len(inner) else inner.add()
        else:
            inner.SetInParent()
            found = inner
    return found


def _values(field: FieldDescriptor) -> Iterator[Any]:
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            yield from ({text: "v"} for text in _TEXTS)
            yield from ({"k": text} for text in _TEXTS)
            yield {f"k{number}": "v" for number in range(_MANY)}
        elif field.is_repeated:
            yield _MANY
        else:
            yield "empty"
    elif field.is_repeated:
        values = _VALUES[field.cpp_type]
        yield from ([value] for value in values)
        yield [values[2]] * _MANY
    elif field.type == FieldDescriptor.TYPE_BYTES:
        yield from _BYTES
    else:
        yield from _VALUES[field.cpp_type]


def _put(holder: Any, field: FieldDescriptor, value: Any) -> None:
    inner = getattr(holder, field.name)
    if isinstance(value, dict):
        inner.clear()
        inner.update(value)
    elif field.message_type is not None and field.is_repeated:
        first = inner[0] if len(inner) else inner.add()
        inner.extend([first] * value)
    elif field.message_type is not None:
        inner.Clear()
        inner.SetInParent()
    elif field.is_repeated:
        del inner[:]
        inner.extend(value)
    else:
        setattr(holder, field.name, value)
