"""The code of users, which is found by `module:name`, and its errors, each in one line."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from types import ModuleType

# The folder of the library's own code: an error is located by the last line outside of it.
_OURS = __file__.rsplit("/", 2)[0]
_PACKAGES = tuple(f"{_OURS}/{name}/" for name in ("dledger", "jepsen_like"))


def raised_in(error: BaseException) -> str:
    """Return the type and text of an error, and the user's line that it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_PACKAGES)]
    shown = theirs or list(frames)
    said = "".join(traceback.format_exception_only(error)).strip().replace("\n", " ")
    if not shown:
        return said
    frame = shown[-1]
    line = f" `{frame.line}`" if frame.line else ""
    outermost = next(each.name for each in shown if each.filename == frame.filename)
    called = f", called by {outermost}" if outermost != frame.name else ""
    place = f"{frame.filename.rpartition('/')[2]}:{frame.lineno} in {frame.name}{called}"
    return f"{said} ({place}{line})"


def said(error: BaseException) -> str:
    """Return the type and text of an error, also of one whose text cannot be made."""
    try:
        text = str(error)
    except Exception:
        text = "without a text"
    return f"{type(error).__name__}: {text}".replace("\n", " ")


def users_module(name: str, unusable: Callable[[str], Exception]) -> ModuleType:
    """Import the module of a name such as `bank:Accounts`. Raises `unusable` with the reason."""
    module_name = name.partition(":")[0]
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a program ends itself when it is imported
        raise unusable(f"{name}: cannot import {module_name}: {raised_in(error)}") from error


def users_object(name: str, unusable: Callable[[str], Exception]) -> object:
    """Return what a name such as `bank:Accounts` leads to. Raises `unusable` with the reason."""
    module_name, _, path = name.partition(":")
    found: object = users_module(name, unusable)
    origin = getattr(found, "__file__", None) or "Python itself"
    for part in path.split("."):
        if not hasattr(found, part):
            raise unusable(f"{name}: {module_name} of {origin} has no {path}")
        found = getattr(found, part)
    return found
