"""Keeps old public names for one more version, with a warning.

A call whose parameters have new names, and a class whose fields have, list them above their own
declaration, old name first:

    @renamed_arguments(timeout_seconds="timeout_s")
    async def send(self, message: Message, *, timeout_s: float | None = None) -> SendResult: ...

    @renamed_fields(linger_milliseconds="linger_ms")
    @dataclass(frozen=True, slots=True)
    class Batching: ...

A type checker knows the new names only.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

Called = TypeVar("Called", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

# The attribute in which a call keeps its new names by old ones.
_NAMES: Final = "__renamed__"


def renamed_arguments(**new_names: str) -> Callable[[Called], Called]:
    """Let a function take arguments by their old names as well, as keywords.

    An old name gives a DeprecationWarning for the caller's line, and with the new one a TypeError.
    """

    def give(function: Called) -> Called:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs and not new_names.keys().isdisjoint(kwargs):
                for old in new_names.keys() & kwargs.keys():
                    _check_one(function, old, new_names[old], kwargs)
                    _warn(f"the argument {old!r} of {_shown(function)}", new_names[old])
                kwargs = {new_names.get(name, name): value for name, value in kwargs.items()}
            return function(*args, **kwargs)

        setattr(call, _NAMES, new_names)
        if sys.version_info >= (3, 12) and inspect.iscoroutinefunction(function):
            inspect.markcoroutinefunction(call)
        return call  # type: ignore[return-value]  # it takes and returns what `function` does

    return give


def renamed_fields(**new_names: str) -> Callable[[Class], Class]:
    """Let fields be given and read by their old names as well.

    For a dataclass, a named tuple or a declared error; above its own decorator.
    """

    def give(cls: Class) -> Class:
        renamed = renamed_arguments(**new_names)
        if issubclass(cls, tuple):
            cls.__new__ = renamed(cls.__new__)  # type: ignore[method-assign]
        else:
            cls.__init__ = renamed(cls.__init__)  # type: ignore[method-assign]
        for old, new in new_names.items():
            setattr(cls, old, _OldAttribute(cls.__name__, old, new))
        return cls

    return give


def new_names_of(called: object) -> dict[str, str]:
    """Return the new names of a function's arguments by old ones; none for most functions."""
    names: dict[str, str] = getattr(called, _NAMES, {})
    return names


class _OldAttribute:
    def __init__(self, owner: str, old: str, new: str) -> None:
        self._told = f"the attribute {old!r} of {owner}"
        self._new = new
        self.__doc__ = f"The old name of `{new}`."

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        _warn(self._told, self._new)
        return getattr(instance, self._new)


def _check_one(function: Called, old: str, new: str, kwargs: dict[str, Any]) -> None:
    if new in kwargs:
        raise TypeError(f"{_shown(function)} got both {new!r} and {old!r}, its old name")


def _warn(what: str, new: str) -> None:
    """Warn of the line that called the function, or read the attribute, that calls this."""
    message = f"{what} is called {new!r} now; the old name works in this version for the last time"
    warnings.warn(message, DeprecationWarning, stacklevel=3)


def _shown(function: Callable[..., Any]) -> str:
    name = function.__qualname__
    return f"{name.removesuffix('.__init__').removesuffix('.__new__')}()"
