"""Calls of Python functions, counted by a profile hook."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

import dledger
from bench.summary import Rows

# What comes in fewer appends or sends than every second one is housekeeping.
SELDOM = 2

# The folder of the packages; files of others have their whole paths.
_ROOT = f"{Path(dledger.__file__).parent.parent}/"

Name = TypeVar("Name")


class CountedCalls:
    """Counts calls in this thread.

    Attributes:
        counts: by file and function.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def counting(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            code = frame.f_code
            self.counts[code.co_filename.removeprefix(_ROOT), code.co_qualname] += 1

    def each(self, times: int) -> dict[tuple[str, str], float]:
        """Return the calls of one of so many appends or sends."""
        return {name: count / times for name, count in self.counts.items()}


def package_of(file: str) -> str:
    """Return the package of a file of ours; the empty text for others."""
    return "" if file.startswith(("/", "<")) else file.partition("/")[0]


def calls_table(calls: Mapping[tuple[str, str], float], what: str) -> Rows:
    """Return a table of the calls of each function for one of `what`, the most first."""
    ordered = sorted(calls.items(), key=lambda item: -item[1])
    cells = [[f"{file} {name}", f"{count:.2f}"] for (file, name), count in ordered]
    return Rows("calls by function", ["what", what], cells)


def regular(calls: Mapping[Name, float]) -> dict[Name, float]:
    """Return the calls of the functions that most appends or sends need."""
    return {name: count for name, count in calls.items() if count * SELDOM >= 1}
