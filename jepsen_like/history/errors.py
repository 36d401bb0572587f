"""Why a history cannot be read, or an event not be written."""

from __future__ import annotations

from dledger.declared_error import DeclaredError


class HistoryUnreadable(DeclaredError):
    """A file is not a history that can be checked. Its text is one line that names the place.

    Args:
        file: the file, as it was named by the caller.
        line: the line, from 1; None if the whole file is meant.
        problem: what is wrong, and what to do where that is not plain.
    """

    file: str
    line: int | None
    problem: str

    def _text(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.problem}"


class BadLine(DeclaredError):
    """A line is not an event, or not one that may follow the events before it.

    The reader knows the file and raises HistoryUnreadable in its place.
    """

    problem: str
    line: int | None = None

    _template = "{problem}"


class EventRefused(DeclaredError, ValueError):
    """An event is not written, because no reader would accept it."""

    problem: str
