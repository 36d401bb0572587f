"""Errors of a user's code as a broken promise of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.witness import InvariantViolated
from jepsen_like.users_code import raised_in

P = ParamSpec("P")
T = TypeVar("T")


def called(name: str, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a method of the user's. If it raises, it breaks a promise.

    Raises InvariantViolated, and Failure if the method does.
    """
    try:
        return method(*args, **kwargs)
    except (InvariantViolated, Failure):
        raise
    except (Exception, SystemExit) as error:
        raise InvariantViolated(f"{name}() never raises", raised_in(error)) from error
