"""Reports in one log line how long the parts of a start took."""

from __future__ import annotations

import os
import time


def process_age_s() -> float:
    """Return the age of this process; 0 where the system does not tell (Linux does)."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as stat:
            ticks = float(stat.read().rpartition(")")[2].split()[19])  # field 22, see proc(5)
        began_s = ticks / os.sysconf("SC_CLK_TCK")
        with open("/proc/uptime", encoding="ascii") as uptime:
            return max(0.0, float(uptime.read().split()[0]) - began_s)
    except (AttributeError, IndexError, OSError, ValueError):
        return 0.0


class StartReport:
    """The parts of one start, each timed from the end of the part before.

    Made once the program is loaded, which is the first part.
    """

    def __init__(self) -> None:
        self._last_s = time.monotonic()
        self._parts = [("program", process_age_s())]

    def ended(self, part: str) -> None:
        now_s = time.monotonic()
        self._parts.append((part, now_s - self._last_s))
        self._last_s = now_s

    def __str__(self) -> str:
        """Return a line like `started in 812 ms: program 640, log 60, port 3, leader 109`."""
        total = sum(took_s for _, took_s in self._parts)
        parts = ", ".join(f"{part} {took_s * 1000:.0f}" for part, took_s in self._parts)
        return f"started in {total * 1000:.0f} ms: {parts}"
