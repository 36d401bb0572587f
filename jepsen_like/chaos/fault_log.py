"""Writes faults.jsonl: the faults with their times, and the events of members."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path


class FaultLog:
    """Writes one line for each event. docs/chaos.md has the format."""

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
        self._file.close()
