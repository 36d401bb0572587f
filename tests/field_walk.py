"""Goes over all fields of an object and of what it holds, whatever its classes say of equality.

A snapshot that leaves a field out gives it back with the value that it begins with. That shows only
where the field has had another one. So a test of snapshots compares field by field, and asks at its
end which fields never changed in all that it has compared: a new field is red until it is covered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any


class FieldWalk:
    """Compares objects, and notes which values each field had.

    Args:
        adapters: by class: what stands for an object of it; its fields, if that is a dictionary.
        spared: fields that are not looked at, as "Class.field", each with the reason.
    """

    def __init__(
        self,
        adapters: Mapping[type, Callable[[Any], object]] | None = None,
        spared: Mapping[str, str] | None = None,
    ) -> None:
        self._adapters = dict(adapters or {})
        self._spared = dict(spared or {})
        self._values: dict[str, set[str]] = {}

    def check_equal(self, found: object, wanted: object) -> None:
        """Raise AssertionError with the place of the first difference; note the values."""
        different = next(_differences(self.plain(found), self.plain(wanted), ""), None)
        assert different is None, different

    def unchanged(self) -> set[str]:
        """The fields that had the same value wherever they were looked at."""
        return {name for name, values in self._values.items() if len(values) < 2}

    def plain(self, value: object) -> object:
        """Tables, lists and numbers with all that is in an object."""
        for kind, adapter in self._adapters.items():
            if isinstance(value, kind):
                found = adapter(value)
                if isinstance(found, dict):
                    return self._noted(kind.__name__, found)
                return self.plain(found)
        if isinstance(value, Enum):
            return repr(value)
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return value
        if isinstance(value, Mapping):
            return {repr(self.plain(key)): self.plain(each) for key, each in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._fields(value, value._fields)
        if isinstance(value, list | tuple | deque):
            return [self.plain(each) for each in value]
        if isinstance(value, set | frozenset):
            return sorted(repr(self.plain(each)) for each in value)
        return self._fields(value, _names(value))

    def _fields(self, value: object, names: tuple[str, ...]) -> object:
        kind = type(value).__name__
        looked_at = [name for name in names if f"{kind}.{name}" not in self._spared]
        return self._noted(kind, {name: getattr(value, name) for name in looked_at})

    def _noted(self, kind: str, content: Mapping[str, object]) -> object:
        found = {f"{kind}.{name}": self.plain(value) for name, value in content.items()}
        for name, value in found.items():
            self._values.setdefault(name, set()).add(repr(value))
        return found


def _names(value: object) -> tuple[str, ...]:
    if is_dataclass(value):
        return tuple(field.name for field in fields(value))
    slots = [
        name
        for kind in type(value).__mro__
        for name in (kind.__dict__.get("__slots__") or ())
        if hasattr(value, name)
    ]
    return (*slots, *getattr(value, "__dict__", ()))


def _differences(found: object, wanted: object, place: str) -> Iterator[str]:
    if isinstance(found, dict) and isinstance(wanted, dict):
        if list(found) != list(wanted):
            yield f"{place}: {list(found)} instead of {list(wanted)}"
            return
        for key, each in found.items():
            yield from _differences(each, wanted[key], f"{place} {key}")
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for at, (each, other) in enumerate(zip(found, wanted, strict=True)):
            yield from _differences(each, other, f"{place}[{at}]")
    elif found != wanted:
        yield f"{place}: {found!r} instead of {wanted!r}"
