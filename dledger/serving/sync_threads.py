"""The threads of a process that wait for its disks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

# Syncs of one process that may wait for the disk at the same time, each for another group. Disks
# gain little from more; with fewer, a hundred groups on a slow one would wait for each other.
MAX_SYNC_THREADS = 8


class SyncThreads(Protocol):
    """Runs syncs beside the event loop, and tells how long they take."""

    def clock(self) -> float:
        """Seconds, for measuring how long a sync takes."""
        ...

    def start(self, sync: Callable[[], None]) -> None:
        """Run that sync beside the event loop."""
        ...

    def wait(self, ended: threading.Event) -> None:
        """Block until a sync that was started has set this event."""
        ...

    def shutdown(self) -> None:
        """Take no more of them; returns when all have ended."""
        ...


class DiskThreads:
    """Real threads. One is started when all others are busy."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_SYNC_THREADS, thread_name_prefix="dledger-syncer")

    def clock(self) -> float:
        """As in SyncThreads."""
        return time.perf_counter()

    def start(self, sync: Callable[[], None]) -> None:
        """As in SyncThreads."""
        self._threads.submit(sync)

    def wait(self, ended: threading.Event) -> None:
        """As in SyncThreads."""
        ended.wait()

    def shutdown(self) -> None:
        """As in SyncThreads."""
        self._threads.shutdown()
