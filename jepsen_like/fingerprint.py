"""Compares states of machines by their content: equal states give equal texts, in any process.

The order of a dictionary or a set is no part of a state, nor do lists differ from tuples (a state
that went through JSON or msgpack is the same). Functions, locks, loggers, files and other objects
without visible content count by their type, and so do parts that are nested too deep.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from collections.abc import Mapping, Set
from hashlib import blake2b

# A text of a state in a message is cut to this.
SHOWN_CHARACTERS_MAX = 160
# Deeper parts of a state are not compared: each level takes some of Python's stack.
LEVELS_MAX = 60
# Objects of these modules are not part of a state.
_MACHINERY = frozenset(
    {"_io", "_thread", "asyncio", "concurrent", "logging", "queue", "socket", "threading", "trio"}
)
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_DIGEST_BYTES = 8


def told(value: object) -> str:
    """Return the content of a value as a text."""
    return _told(value, ())


def digest(value: object) -> bytes:
    """Return a short sum of `told`."""
    return blake2b(
        told(value).encode("utf-8", "backslashreplace"), digest_size=_DIGEST_BYTES
    ).digest()


def shortened(text: str) -> str:
    """Cut a text so that it fits in a message."""
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return text[: SHOWN_CHARACTERS_MAX - 4] + " ..."


def difference(here: object, there: object) -> str:
    """Return where two values differ, in words; empty if they do not."""
    return _difference(here, there, "", 0)


def _told(value: object, inside: tuple[int, ...]) -> str:
    if isinstance(value, _PLAIN) and type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, bytearray | memoryview):
        return repr(bytes(value))
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, type):
        return f"<{value.__qualname__}>"
    if id(value) in inside:
        return "<again>"
    kind = type(value)
    if len(inside) >= LEVELS_MAX or kind.__module__.partition(".")[0] in _MACHINERY:
        return f"<{kind.__qualname__}>"
    inside = (*inside, id(value))
    if isinstance(value, OrderedDict):
        pairs = [f"{_told(k, inside)}: {_told(v, inside)}" for k, v in value.items()]
        return "ordered{" + ", ".join(pairs) + "}"
    if isinstance(value, Mapping):
        pairs = sorted(f"{_told(k, inside)}: {_told(v, inside)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, Set):
        return "set(" + ", ".join(sorted(_told(each, inside) for each in value)) + ")"
    if isinstance(value, list | tuple | deque):
        return "[" + ", ".join(_told(each, inside) for each in value) + "]"
    attributes = _attributes(value)
    if attributes is not None:
        return f"{type(value).__qualname__}({_told(attributes, inside)})"
    text = repr(value)
    # The default text of an object has its address, which says nothing about its content.
    return f"<{type(value).__qualname__}>" if " at 0x" in text else text


def _attributes(value: object) -> dict[str, object] | None:
    """Return the attributes of an object of a class that Python code wrote; None for others."""
    if not type(value).__flags__ & 1 << 9:  # Py_TPFLAGS_HEAPTYPE: made by a class statement
        return None
    if callable(value) and not hasattr(value, "__dict__"):
        return None
    slots = [
        name
        for kind in type(value).__mro__
        for name in _names(vars(kind).get("__slots__", ()))
        if hasattr(value, name)
    ]
    found = {name: getattr(value, name) for name in slots}
    found.update(getattr(value, "__dict__", {}))
    return found if found or hasattr(value, "__dict__") or slots else None


def _names(slots: object) -> list[str]:
    names = [slots] if isinstance(slots, str) else list(slots)  # type: ignore[call-overload]
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _difference(here: object, there: object, path: str, depth: int) -> str:
    left, right = told(here), told(there)
    if left == right:
        return ""
    if depth < 8:
        pairs = _parts(here, there)
        if pairs is not None:
            for name, one, other in pairs:
                found = _difference(one, other, f"{path}{name}", depth + 1)
                if found:
                    return found
    where = path.lstrip(".") or "it"
    return f"{where} is {shortened(left)}, not {shortened(right)}"


def _parts(here: object, there: object) -> list[tuple[str, object, object]] | None:
    """Return the parts of two values of one shape, side by side; None if their shapes differ."""
    if isinstance(here, Mapping) and isinstance(there, Mapping):
        if told(set(here)) != told(set(there)):
            return None
        return [(f"[{told(name)}]", here[name], there[name]) for name in here]
    if isinstance(here, list | tuple | deque) and isinstance(there, list | tuple | deque):
        if len(here) != len(there):
            return None
        return [(f"[{at}]", *pair) for at, pair in enumerate(zip(here, there, strict=True))]
    if type(here) is not type(there) or isinstance(here, (*_PLAIN, Set)):
        return None
    mine, theirs = _attributes(here), _attributes(there)
    if mine is None or theirs is None or mine.keys() != theirs.keys():
        return None
    return [(f".{name}", mine[name], theirs[name]) for name in mine]
