"""The trace of a run, one line an event: virtual time, node, event. Equal seeds, equal bytes."""

from __future__ import annotations

from collections import deque
from typing import Protocol

# Lines kept of a failing run: the last few elections, and small enough to read on a screen.
KEPT_LINES = 2_000


class LineSink(Protocol):
    """Takes the lines of a whole run: usually an open text file."""

    def write(self, text: str, /) -> object: ...


class Trace:
    """The last lines of a run, and all of them for a sink if there is one."""

    __slots__ = ("_lines", "_sink")

    def __init__(self, sink: LineSink | None = None) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._sink = sink

    def note(self, now: float, who: str, what: str) -> None:
        line = f"{now:11.6f} {who:<4} {what}"
        self._lines.append(line)
        if self._sink is not None:
            self._sink.write(line + "\n")

    def last(self, count: int) -> list[str]:
        return list(self._lines)[-count:]
