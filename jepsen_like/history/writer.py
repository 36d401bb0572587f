"""Writes histories."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType

from jepsen_like.history.errors import BadLine, EventRefused
from jepsen_like.history.header import FORMAT_VERSION
from jepsen_like.history.json_lines import (
    VERSION_FIELD,
    checked_function,
    checked_process,
    checked_time_ns,
    event_line,
    parse_header,
)
from jepsen_like.history.operation import Event, EventType
from jepsen_like.history.pairing import Pairing
from jepsen_like.history.value import Value, frozen, thawed

FIRST_EVENT_LINE = 2


class HistoryWriter:
    """Writes one history, line by line: a recorder that is killed loses no whole line.

    It refuses what a reader would refuse, so a history that was written can be read.

    Args:
        path: the new file; an old one of the name is not overwritten.
        settings: further fields of the header, such as `workload`, `model` and `seed`.
    """

    def __init__(self, path: Path, **settings: object) -> None:
        head = json.dumps({VERSION_FIELD: FORMAT_VERSION, **settings})
        try:
            parse_header(head)
        except BadLine as error:
            raise EventRefused(error.problem) from None
        self._file = path.open("x", encoding="utf-8", buffering=1)
        self._file.write(head + "\n")
        self._line = FIRST_EVENT_LINE
        self._pairing = Pairing()

    def event(
        self,
        process: int | str,
        time_ns: int,
        type: EventType,
        function: str,
        key: Value = None,
        value: object = None,
        error: Value = None,
        member: str | None = None,
    ) -> None:
        """Write one event. Raises EventRefused, and then writes nothing."""
        try:
            event = Event(
                self._line,
                checked_process(process),
                checked_time_ns(time_ns),
                EventType(type),
                checked_function(function),
                frozen(key),
                frozen(value),
                frozen(error),
                member,
            )
            line = event_line(event._replace(value=thawed(event.value)))
            self._pairing.add(event)
        except (BadLine, ValueError) as refused:
            raise EventRefused(str(refused)) from None
        self._file.write(line + "\n")
        self._line += 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
