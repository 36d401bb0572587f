"""How long, and for how many instructions, tasks hold the event loop."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Final

import trio

# Tasks of a broker and of its key index.
_BY_TIME: Final = ("Broker._tick", "Broker._look_over", "IndexTasks.keep", "KeptLog._look_for_ever")


def is_by_time(task: trio.lowlevel.Task) -> bool:
    """Return whether a task looks again and again, whoever asks."""
    return task.name.endswith(_BY_TIME)


class LoopHolds(trio.abc.Instrument):
    """Notes the longest step of all tasks: from when one is run until it lets others run.

    Args:
        measure: what grows while a task holds the loop: by default the seconds that the thread has
            had of a processor, so that a busy machine makes nothing longer.

    What the broker does by time, whoever asks, is left out: see `by_time`.

    Attributes:
        longest: of all steps, in units of `measure`.
        task: the name of the task that took it.
        by_time: the longest step of the tasks that look again and again.
        sum: of all steps together.
    """

    def __init__(self, measure: Callable[[], float] = time.thread_time) -> None:
        self._measure = measure
        self._began = measure()
        self.longest = self.by_time = self.sum = 0.0
        self.task = ""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = self._measure()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        held = self._measure() - self._began
        if is_by_time(task):
            self.by_time = max(self.by_time, held)
            return
        self.sum += held
        if held > self.longest:
            self.longest, self.task = held, task.name


@contextmanager
def watched(measure: Callable[[], float] = time.thread_time) -> Iterator[LoopHolds]:
    """Watch the loop. Begin and end the block with a checkpoint, which ends a step."""
    holds = LoopHolds(measure)
    trio.lowlevel.add_instrument(holds)
    try:
        yield holds
    finally:
        trio.lowlevel.remove_instrument(holds)


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage during a block: its cost belongs to no request or entry."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


class Instructions:
    """Counts Python's instructions of this thread: the same in every run.

    Work of C functions is not counted: count their bytes separately.
    """

    def __init__(self) -> None:
        self.count = 0

    if sys.version_info >= (3, 12):
        # A trace function misses the instructions of functions that were never traced before.

        @contextmanager
        def counting(self) -> Iterator[None]:
            """Count the instructions of functions that begin, or go on, within the block."""
            monitoring, tool = sys.monitoring, sys.monitoring.PROFILER_ID
            thread = threading.get_ident()

            def carried_out(_code: CodeType, _offset: int) -> None:
                if threading.get_ident() == thread:
                    self.count += 1

            monitoring.use_tool_id(tool, "instructions")
            monitoring.register_callback(tool, monitoring.events.INSTRUCTION, carried_out)
            monitoring.set_events(tool, monitoring.events.INSTRUCTION)
            try:
                yield
            finally:
                monitoring.set_events(tool, 0)
                monitoring.register_callback(tool, monitoring.events.INSTRUCTION, None)
                monitoring.free_tool_id(tool)

    else:

        @contextmanager
        def counting(self) -> Iterator[None]:
            """Count the instructions of functions that begin, or go on, within the block."""
            before = sys.gettrace()
            sys.settrace(self._called)
            try:
                yield
            finally:
                sys.settrace(before)

        def _called(self, frame: FrameType, _event: str, _value: Any) -> Any:
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            return self._traced

        def _traced(self, _frame: FrameType, event: str, _value: Any) -> Any:
            if event == "opcode":
                self.count += 1
            return self._traced
