"""Writes histories."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from jepsen_like.history.errors import BadLine, EventRefused
from jepsen_like.history.header import FORMAT_VERSION
from jepsen_like.history.json_lines import (
    VERSION_FIELD,
    checked_function,
    checked_member,
    checked_process,
    checked_time_ns,
    event_line,
    parse_event,
    parse_header,
)
from jepsen_like.history.operation import Event, EventType, Operation
from jepsen_like.history.pairing import Pairing
from jepsen_like.history.value import Value, frozen, thawed

FIRST_EVENT_LINE = 2


class HistoryWriter:
    """Writes one history, line by line: a recorder that is killed loses no whole line.

    It refuses events that a reader would refuse, so a written history can be read.

    Args:
        path: the new file; an existing one is not overwritten.
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

    @classmethod
    def going_on(cls, path: Path, **settings: object) -> HistoryWriter:
        """Continue a history whose recorder was killed, or begin it if that had not.

        A last line that was cut off is removed. Raises BadLine if the rest is no history.
        """
        whole = path.read_bytes() if path.exists() else b""
        whole = whole[: whole.rfind(b"\n") + 1]
        if not whole:
            path.unlink(missing_ok=True)
            return cls(path, **settings)
        os.truncate(path, len(whole))
        _, *lines = whole.decode().splitlines()
        writer = cls.__new__(cls)
        writer._file = path.open("a", encoding="utf-8", buffering=1)
        writer._line = FIRST_EVENT_LINE + len(lines)
        writer._pairing = Pairing()
        for number, line in enumerate(lines, FIRST_EVENT_LINE):
            writer._pairing.add(parse_event(number, line))
        return writer

    @property
    def operations(self) -> Sequence[Operation]:
        """The operations that were written, in the order of the calls."""
        return self._pairing.operations

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
                checked_member(member),
            )
            line = event_line(event._replace(value=thawed(event.value)))
            self._pairing.add(event)
        except (BadLine, ValueError) as refused:
            raise EventRefused(str(refused)) from None
        self._file.write(line + "\n")
        self._line += 1

    def close(self) -> None:
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
