"""Tasks beside the calls of clients: an error of one is logged, and harms no other."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVarTuple, Unpack

from remoting.net.starts_tasks import StartsTasks
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# Messages that are given back or dropped, and questions that are passed on. What goes beyond is
# not done: messages are visible after their times, and brokers ask again.
MAX_TASKS: Final = 10_000

Arguments = TypeVarTuple("Arguments")


class Beside:
    """Runs tasks in a nursery. Implements `StartsTasks`."""

    def __init__(self, nursery: StartsTasks) -> None:
        self._nursery = nursery
        self._running = 0

    def start_soon(
        self, task: Callable[[Unpack[Arguments]], Awaitable[object]], /, *arguments: *Arguments
    ) -> None:
        if self._running >= MAX_TASKS:
            _log.warning("%d tasks run beside calls: %s is not begun", MAX_TASKS, quoted(task))
            return
        self._running += 1
        self._nursery.start_soon(self._run, task, arguments)

    async def _run(
        self, task: Callable[[Unpack[Arguments]], Awaitable[object]], arguments: tuple[*Arguments]
    ) -> None:
        try:
            await task(*arguments)
        except Exception:
            _log.exception("a task beside the calls of clients failed")
        finally:
            self._running -= 1
