"""Memory and processor time of a process, from /proc."""

from __future__ import annotations

import os
import re
import resource
import time
from pathlib import Path
from typing import NamedTuple


class Memory(NamedTuple):
    """Resident memory in MiB: all, and the anonymous part."""

    resident: float
    anonymous: float


def memory_of(status: str) -> Memory:
    """Read the text of /proc/PID/status."""
    found = dict(re.findall(r"^(VmRSS|RssAnon):\s+(\d+) kB$", status, re.MULTILINE))
    return Memory(int(found.get("VmRSS", 0)) / 1024, int(found.get("RssAnon", 0)) / 1024)


def memory(pid: int) -> Memory:
    return memory_of(Path(f"/proc/{pid}/status").read_text())


def ran_s(pid: int) -> float:
    """Return the processor time of a process, also that of threads that have ended."""
    # Linux's clock of a process: the complement of its number, and 2 for the time that it was run.
    return time.clock_gettime((~pid << 3) | 2)


def delayed_s(pid: int) -> float:
    """Return how long the first thread of a process has waited while others had the processors."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def children_processor_s() -> float:
    """Return the processor time of all child processes that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tree_processor_s(pid: int) -> float:
    """Return the processor time of a process and its descendants that run or were waited for."""
    stats, children = {}, dict[int, list[int]]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            stats[int(entry.name)] = sum(map(int, fields[11:15]))
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        total += stats.get(one, 0)
        waiting += children.get(one, [])
    return total / os.sysconf("SC_CLK_TCK")
