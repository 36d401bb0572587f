"""The interface of checkers, and their errors for histories of another kind."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from jepsen_like.checkers.report import Report
from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.history.history import History
from jepsen_like.history.value import shown

# The memory of a search. With the history itself a check stays below 1 GB or so.
MEMORY_BYTES_MAX = 700_000_000


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Bounds:
    """Ends a search that takes too long or too much memory; its verdict is then unknown.

    Args:
        out_of_time: returns whether the time is over; it is called a few times a second.
        memory_bytes_max: the memory of the search, estimated.
    """

    out_of_time: Callable[[], bool] = _never
    memory_bytes_max: int = MEMORY_BYTES_MAX


@dataclass(frozen=True)
class Request:
    """How a history is to be checked.

    Args:
        bounds: the limits of the search.
        allowed: kinds of problems that are reported but do not make a history invalid.
    """

    bounds: Bounds = field(default_factory=Bounds)
    allowed: Collection[str] = ()


# Checks whether a history keeps a promise. Raises HistoryUnreadable if the promise does not cover
# one of its operations.
Check = Callable[[History, Request], Report]


def no_function(function: str, functions: Collection[str]) -> str:
    """Return the error text for a function that a model does not have."""
    return (
        f"{shown(function, 40)} is no function of this model, which has "
        f"{', '.join(sorted(functions))}: name another model with --model"
    )


def refuse_other_functions(history: History, functions: Collection[str]) -> None:
    """Raise HistoryUnreadable if an operation is of another function."""
    for operation in history.operations:
        if operation.function not in functions:
            raise history.unreadable(
                operation.invoked_line, no_function(operation.function, functions)
            )


def refuse_without_times(history: History, what: str) -> None:
    """Raise HistoryUnreadable if there are operations, and their events carried no times."""
    if not history.timed and history.operations:
        problem = f"{what} need times, and the events of this file have none"
        raise history.unreadable(None, problem)


def nanoseconds_setting(history: History, name: str) -> int | None:
    """Return a setting of the header that is a time, None without it. Raises HistoryUnreadable."""
    value = history.header.setting(name)
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise wrong_value(history, 1, f"{name} in the header is nanoseconds", value)
    return value


def wrong_value(
    history: History, line: int | None, expected: str, value: object
) -> HistoryUnreadable:
    """Return the error for a value whose shape is not that of its function."""
    return history.unreadable(line, f"{expected}, not {shown(value, 40)}")


def counted(number: int, noun: str) -> str:
    """Return a number and a noun, in the plural unless it is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
