"""Short one-line texts for values that hold users' data.

The `repr` of a value lands in log lines, tracebacks and cells of notebooks. A body of 4 MiB would
be up to 16 MiB of text there. So long contents show their beginning and their size.
"""

from __future__ import annotations

import reprlib
from dataclasses import fields, is_dataclass
from typing import Final

# Two lines of a terminal.
REPR_CHARACTERS: Final = 199

_CONTENT_CHARACTERS: Final = 40
_CONTENT_BYTES: Final = 16


def short_repr(value: object) -> str:
    """Return `Class(field=content, ...)`: the `__repr__` of dataclasses and named tuples."""
    return shown_fields(value, _names(value))


def shown_fields(value: object, names: tuple[str, ...]) -> str:
    shown = ", ".join(f"{name}={_SHORT.repr(getattr(value, name))}" for name in names)
    text = f"{type(value).__name__}({shown})"
    return text if len(text) <= REPR_CHARACTERS else f"{text[: REPR_CHARACTERS - 4]}...)"


def _names(value: object) -> tuple[str, ...]:
    if is_dataclass(value):
        return tuple(field.name for field in fields(value) if field.repr)
    names: tuple[str, ...] = value._fields  # type: ignore[attr-defined]
    return names


class _Short(reprlib.Repr):
    """Shortens contents; `reprlib` calls a method by the name of a value's class."""

    def repr_str(self, text: str, level: int) -> str:
        if len(text) <= _CONTENT_CHARACTERS:
            return repr(text)
        return f"{text[:_CONTENT_CHARACTERS]!r}... ({len(text)} characters)"

    def repr_bytes(self, content: bytes | bytearray, level: int) -> str:
        if len(content) <= _CONTENT_CHARACTERS:
            return repr(content)
        return f"{content[:_CONTENT_BYTES]!r}... ({len(content)} bytes)"

    repr_bytearray = repr_bytes


_SHORT: Final = _Short()
_SHORT.maxother = _SHORT.maxlong = REPR_CHARACTERS
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = 6
