"""Writes faults.jsonl: what was broken when, and what members did of themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path


class FaultLog:
    """One line for each event. docs/chaos.md has the format.

    Args:
        path: the new file.
        now_ns: nanoseconds of the clock of the history.
        wall: the time of day, in ISO 8601.
    """

    def __init__(self, path: Path, now_ns: Callable[[], int], wall: Callable[[], str]) -> None:
        self._file = path.open("x", encoding="utf-8", buffering=1)
        self._now_ns = now_ns
        self._wall = wall
        self.events: list[dict[str, object]] = []

    def note(self, event: str, **fields: object) -> None:
        """Write one event, with the present time, or an earlier one that is given as `time_ns`."""
        line = {"event": event, "time_ns": self._now_ns(), "wall": self._wall(), **fields}
        self._file.write(json.dumps(line) + "\n")
        self.events.append(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
