"""Every class of errors of the project, and objects of classes, made of their type hints."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from types import UnionType
from typing import Any

PACKAGES = (
    "dledger",
    "remoting",
    "nameserver",
    "broker",
    "dledger_mq",
    "proxy",
    "dledger_spark",
    "jepsen_like",
)


def error_classes() -> list[type[Exception]]:
    """All of them, public or not, by their full names."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for found in pkgutil.walk_packages(module.__path__, f"{package}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    mine = {kind for kind in _below(Exception) if kind.__module__.split(".")[0] in PACKAGES}
    return sorted(mine, key=lambda kind: (kind.__module__, kind.__qualname__))


def _below(kind: type[Exception]) -> Iterator[type[Exception]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


# What no type hint says: a hint of a protocol or of a wide class, and an object that fits.
WIDE: Mapping[object, object] = {
    BaseException: OSError(24, "Too many open files", "/data/n1/log"),
    OSError: OSError(5, "Input/output error", "/data/n1/log"),
    object: "any object",
    Any: "any object",
}


def example_error(kind: type[Exception], *, characters: int = 9) -> Exception:
    """An error of a class, called as its type hints ask; each text is so long."""
    if kind.__init__ in (Exception.__init__, OSError.__init__, ValueError.__init__):
        return kind("t" * characters)
    made = kind.__init__.__code__.co_filename == "<string>"  # of the fields
    hints = typing.get_type_hints(kind if made else kind.__init__)
    parameters = inspect.signature(kind).parameters
    return kind(*[example_of(hints[name], characters) for name in parameters])


def example_of(hint: Any, characters: int) -> object:
    """An object of a type, each text and body of which is so long."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in WIDE:
        return WIDE[hint]
    if origin in (typing.Union, UnionType):
        return example_of(
            next(each for each in arguments if each is not types.NoneType), characters
        )
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(example_of(each, characters) for each in arguments)
    if origin is not None and issubclass(origin, Mapping):
        return {example_of(arguments[0], characters): example_of(arguments[1], characters)}
    if origin is not None and issubclass(origin, Collection):
        held = (example_of(arguments[0], characters), example_of(arguments[0], characters))
        return list(held) if origin in (list, Sequence) else origin(held)
    if hint is str:
        return "t" * characters
    if hint is bytes:
        return b"b" * characters
    if issubclass(hint, Enum):
        return next(iter(hint))
    if issubclass(hint, bool | int | float):
        return hint(7)
    hints = typing.get_type_hints(hint)
    parameters = dict(inspect.signature(hint).parameters)
    if not hints:
        hints = typing.get_type_hints(hint.__init__)
        parameters = {  # the others are for what its makers know
            name: each for name, each in parameters.items() if each.default is each.empty
        }
    return hint(**{name: example_of(hints[name], characters) for name in parameters})
