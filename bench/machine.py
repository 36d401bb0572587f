"""Describes the machine that the figures are of, and has its host give it its memory."""

from __future__ import annotations

import mmap
import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    cpu: str
    cores: int
    memory_gib: float
    disk: str
    kernel: str
    python: str
    million_turns_ms: float  # of an empty loop: builds of one version differ by a third
    load: float  # of the last minute, before anything was measured

    def in_words(self) -> str:
        return (
            f"{self.cores} x {self.cpu}, {self.memory_gib:.0f} GiB of memory, {self.disk}, "
            f"{self.kernel}, Python {self.python} (a million turns of an empty loop in "
            f"{self.million_turns_ms:.0f} ms); its load before was {self.load:.1f}"
        )


def this_machine(folder: Path) -> Machine:
    return Machine(
        cpu=cpu_model(_read("/proc/cpuinfo")),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=memory_gib(_read("/proc/meminfo")),
        disk=_disk(folder),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        million_turns_ms=million_turns_ms(),
        load=os.getloadavg()[0],
    )


def million_turns_ms() -> float:
    """Return the time of a million turns of an empty loop: the best of five."""
    best_s = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(1_000_000):
            pass
        best_s = min(best_s, time.perf_counter() - started)
    return best_s * 1000


def cpu_model(cpuinfo: str) -> str:
    """Return the model's name from the text of /proc/cpuinfo."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def memory_gib(meminfo: str) -> float:
    """Return all memory, from the text of /proc/meminfo."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(found[1]) / 1024**2 if found else 0.0


def mount_of(path: str, mounts: str) -> tuple[str, str]:
    """Return device and file system of a path, from the text of /proc/mounts."""
    best = ("", "?", "?")
    for line in mounts.splitlines():
        device, point, kind = line.split(" ")[:3]
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, device, kind)
    return best[1], best[2]


def _disk(folder: Path) -> str:
    device, kind = mount_of(str(folder.resolve()), _read("/proc/mounts"))
    number = folder.stat().st_dev
    block = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    queue = next((each for each in (block, block.parent) if (each / "queue").is_dir()), None)
    if queue is None:
        return f"{kind} on {device}"
    cache = _read(f"{queue}/queue/write_cache").strip() or "unknown"
    return f"{kind} on {Path(device).name} (write cache: {cache})"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def touch_memory(size_mib: int) -> None:
    """Write to each page of `size_mib` of memory, and free it for the next processes.

    Many hosts provide a page when a guest first touches it, and take back free ones. A program that
    writes much, also to the page cache, then pays for each new page: 13 us for 4 KiB on the machine
    of the documentation, a quarter of all processor time of a group under load.

    Raises MemoryError or OSError if there is not so much.
    """
    if size_mib == 0:
        return
    size = size_mib << 20
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1
