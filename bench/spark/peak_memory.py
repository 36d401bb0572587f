"""The peak memory of commands over one log, of each kind of process that they start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.process_figures import children_processor_s
from dledger_spark.session import local_session

# The pause between two looks at the processes; shorter peaks may be missed.
LOOK_EVERY_S: Final = 0.1
_MIB: Final = 1 << 20
_JOB: Final = "job"


class Peak(NamedTuple):
    """The peak of a command.

    Attributes:
        processor_s: processor time of all its processes that it has waited for.
        mib: largest resident memory, by the name of the process.
    """

    what: str
    clock_s: float
    processor_s: float
    mib: dict[str, int]


def peaks(log: Path, home: Path, memory_mib: int) -> list[Peak]:
    """Run the commands over a log. Raises CalledProcessError if one fails."""
    command = [sys.executable, "-m", "dledger_spark"]
    tables = ["tables", "--path", str(log), "--out", str(home / f"peak-tables-{os.getpid()}")]
    return [
        _peak("facts", [*command, *tables, "--facts-only"]),
        _peak("derived tables", [*command, *tables, "--memory", str(memory_mib)]),
        _peak("count", [*command, "count", "--path", str(log)]),
        _peak("all messages in Spark", [sys.executable, "-m", __name__, _JOB, str(log)]),
    ]


def _peak(what: str, command: list[str]) -> Peak:
    clock_s, processor_s = time.perf_counter(), children_processor_s()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    most: Counter[str] = Counter()
    while process.poll() is None:
        most |= resident(process.pid)
        time.sleep(LOOK_EVERY_S)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Peak(
        what,
        time.perf_counter() - clock_s,
        children_processor_s() - processor_s,
        {name: size // _MIB for name, size in most.items()},
    )


def resident(pid: int) -> Counter[str]:
    """Return the bytes of the largest process of each name, among a process and its descendants."""
    found: Counter[str] = Counter()
    waiting = [pid]
    while waiting:
        one = Path("/proc", str(waiting.pop()))
        try:
            name = (one / "comm").read_text().strip()
            pages = int((one / "statm").read_text().split()[1])
            children = [(task / "children").read_text() for task in (one / "task").iterdir()]
        except OSError:
            continue  # it has ended meanwhile
        found |= Counter({name: pages * os.sysconf("SC_PAGE_SIZE")})
        waiting += map(int, " ".join(children).split())
    return found


def _all_messages(log: str) -> None:
    with local_session() as session:
        frame: Any = session.read.format("dledger").option("table", "messages").load(log)
        frame.write.format("noop").mode("overwrite").save()


if __name__ == "__main__" and sys.argv[1:2] == [_JOB]:
    _all_messages(sys.argv[2])
