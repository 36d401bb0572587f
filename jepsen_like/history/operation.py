"""Events as they are recorded, and the operations that pairs of events describe."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from jepsen_like.history.value import Value, shown


class EventType(StrEnum):
    """The meaning of an event for its operation."""

    INVOKE = "invoke"  # the client calls
    OK = "ok"  # it happened, between its call and this answer
    FAIL = "fail"  # it certainly did not happen, and never will
    INFO = "info"  # unknown: it may happen at any time from its call on, or never


class Event(NamedTuple):
    """One line of a history.

    `process` is a number for a client, which does one thing after another, and a name for an
    observer that takes notes, such as `nemesis`. `time_ns` is of one monotonic clock.
    """

    line: int
    process: int | str
    time_ns: int
    type: EventType
    function: str
    key: Value = None
    value: Value = None
    error: Value = None
    member: str | None = None


@dataclass(slots=True)
class Operation:
    """One call of a client and its outcome.

    Lines give the order of events: `ended_line` is None if no event ended the operation. `result`
    is the value of the event that ended it, or None.
    """

    process: int
    function: str
    key: Value
    value: Value
    invoked_line: int
    invoked_ns: int
    member: str | None = None
    outcome: EventType = EventType.INFO
    result: Value = None
    ended_line: int | None = None
    ended_ns: int | None = None
    error: Value = None

    @property
    def ok(self) -> bool:
        """Whether it certainly happened."""
        return self.outcome is EventType.OK

    @property
    def failed(self) -> bool:
        """Whether it certainly did not happen."""
        return self.outcome is EventType.FAIL

    @property
    def certain_from(self) -> float:
        """The line from which on it has certainly happened; infinity if no such line is known."""
        return self.ended_line if self.ok and self.ended_line is not None else float("inf")

    def __str__(self) -> str:
        key = "" if self.key is None else f" of {shown(self.key, 40)}"
        value = "" if self.value is None else f" {shown(self.value)}"
        told = (
            "" if self.result is None or self.result == self.value else f" -> {shown(self.result)}"
        )
        unknown = ", outcome unknown" if self.outcome is EventType.INFO else ""
        end = "" if self.ended_line is None else f"-{self.ended_line}"
        where = f"lines {self.invoked_line}{end}" if end else f"line {self.invoked_line}"
        return f"{self.function}{value}{key}{told} ({where}, process {self.process}{unknown})"
