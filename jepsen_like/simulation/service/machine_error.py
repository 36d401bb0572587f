"""Errors of a user's code: each in one line, and as a broken promise of the run."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.witness import InvariantViolated

P = ParamSpec("P")
T = TypeVar("T")

# The folder of the library's own code: a user's error is told by the last line outside of it.
_OURS = __file__.rsplit("/", 4)[0]
_PACKAGES = tuple(f"{_OURS}/{name}/" for name in ("dledger", "jepsen_like"))


def raised_in(error: BaseException) -> str:
    """The type and text of an error, and the user's line that it comes from."""
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


def called(name: str, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a method that the user gave; one that raises breaks a promise.

    Raises InvariantViolated, and Failure if the method does.
    """
    try:
        return method(*args, **kwargs)
    except (InvariantViolated, Failure):
        raise
    except Exception as error:
        raise InvariantViolated(f"{name}() never raises", raised_in(error)) from error
