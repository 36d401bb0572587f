"""Errors of the source as Spark tells them: one line, without the frames that raised them."""

import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from dledger_spark.errors import DledgerSparkError

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Spark sets the first variable in its Python workers. The second one lets a worker leave out the
# frames of an error. A worker ends after its first error, so this concerns no other error.
_RUNTIME: Final = ("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
_HIDE: Final = "SPARK_HIDE_TRACEBACK"


def told(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let Spark tell the package's errors of a call without their frames."""

    @wraps(call)
    def calling(*arguments: _P.args, **named: _P.kwargs) -> _R:
        try:
            return call(*arguments, **named)
        except DledgerSparkError:
            _hide_frames()
            raise

    return calling


def told_rows(call: Callable[_P, Iterator[_R]]) -> Callable[_P, Iterator[_R]]:
    """Do as `told` for the rows that a generator yields."""

    @wraps(call)
    def calling(*arguments: _P.args, **named: _P.kwargs) -> Iterator[_R]:
        try:
            yield from call(*arguments, **named)
        except DledgerSparkError:
            _hide_frames()
            raise

    return calling


def _hide_frames() -> None:
    if os.environ.get(_RUNTIME[0]) == _RUNTIME[1]:
        os.environ[_HIDE] = "1"
