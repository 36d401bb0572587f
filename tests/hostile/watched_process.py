"""Runs a server as it is, and notes how long its event loop was held up by its own work.

    python -m tests.hostile.watched_process REPORT MODULE ARGUMENTS...

The report is written at the end, and at each SIGUSR1, which begins a new one: a server starts in
one long pass, which holds up no client.

A pass of the event loop runs every task that is ready; whatever arrives meanwhile waits. What a
pass takes is counted in processor time of its thread: on a busy machine the scheduler and the disk
make passes longer, and neither is the server's doing.
"""

from __future__ import annotations

import functools
import gc
import json
import re
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

import trio


class LoopWatch(trio.abc.Instrument):
    """Notes the longest passes of the event loop, with the task that took most, and collections."""

    def __init__(self) -> None:
        self.longest: list[tuple[float, str, float]] = []
        self._pass_began = self._step_began = time.thread_time()
        self._step_s, self._step_name = 0.0, ""
        self.longest_collections: dict[int, float] = {}
        self._collection_began = 0.0

    def on_collection(self, phase: str, details: dict[str, int]) -> None:
        """Note how long the garbage collector takes, by generation: see `gc.callbacks`."""
        if phase == "start":
            self._collection_began = time.thread_time()
        else:
            took_s = time.thread_time() - self._collection_began
            generation = details["generation"]
            before = self.longest_collections.get(generation, 0.0)
            self.longest_collections[generation] = max(before, took_s)

    def after_io_wait(self, timeout: float) -> None:
        self._pass_began = time.thread_time()
        self._step_s, self._step_name = 0.0, ""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step_began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took_s = time.thread_time() - self._step_began
        if took_s > self._step_s:
            self._step_s, self._step_name = took_s, task.name

    def before_io_wait(self, timeout: float) -> None:
        took_s = time.thread_time() - self._pass_began
        self.longest.append((took_s, self._step_name, self._step_s))
        if len(self.longest) > 1000:
            self._keep_ten()

    def begin_anew(self) -> None:
        """Forget what was noted."""
        self.longest.clear()
        self.longest_collections.clear()

    def report(self) -> dict[str, Any]:
        """The longest passes, and the most memory that was resident."""
        self._keep_ten()
        return {
            "longest_passes_ms": [
                [round(1000 * took_s, 1), name, round(1000 * step, 1)]
                for took_s, name, step in self.longest
            ],
            "longest_collections_ms": {
                generation: round(1000 * took_s, 1)
                for generation, took_s in sorted(self.longest_collections.items())
            },
            "max_resident_kib": _most_resident_kib(),
        }

    def _keep_ten(self) -> None:
        self.longest.sort(reverse=True)
        del self.longest[10:]


def _most_resident_kib() -> int:
    """The most memory that was resident; what `getrusage` says may be from before the start."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])


def main() -> None:
    report, module = Path(sys.argv[1]), sys.argv[2]
    sys.argv = sys.argv[2:]
    watch = LoopWatch()
    gc.callbacks.append(watch.on_collection)

    def write_report(*_signal: object) -> None:
        # Renamed, so that no reader finds half of it.
        part = report.with_suffix(".part")
        part.write_text(json.dumps(watch.report()), encoding="utf-8")
        part.rename(report)
        watch.begin_anew()

    signal.signal(signal.SIGUSR1, write_report)
    setattr(trio, "run", functools.partial(trio.run, instruments=[watch]))  # noqa: B010
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        write_report()


if __name__ == "__main__":
    main()
