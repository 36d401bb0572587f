"""Makes writes durable, one sync at a time: at once while the disk is quick, else in a thread.

While one sync runs the next batch gathers, so the cost of a sync is shared by everything that
arrived meanwhile (group commit). A sync that takes a fraction of a millisecond is over sooner
than a thread is woken for it and heard from: then the event loop does it itself. A disk that
turns slow holds the loop up once; from then on its syncs run beside the loop.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import trio

from dledger.errors import DLedgerError
from dledger.store.log_store import SyncWork

SyncDone = Callable[[SyncWork, DLedgerError | None], None]

# Handing a sync to the thread costs about 0.2 ms of processor time, and as much of waiting. Up to
# a few times this it pays to wait, and nobody else in the process notices.
QUICK_SYNC_S = 0.002

# Weight of the newest sync in the average: one of 20 ms sends the next ten to the thread.
NEWEST_WEIGHT = 0.125


class Syncer:
    """Runs one SyncWork at a time, and knows how long they take."""

    def __init__(self, done: SyncDone, clock: Callable[[], float] = time.perf_counter) -> None:
        self._done = done
        self._clock = clock
        self._average_s = QUICK_SYNC_S  # a disk is slow until it has shown that it is quick
        self._token = trio.lowlevel.current_trio_token()
        # A queue of one: the driver never starts a sync before the last one was reported.
        self._works: queue.SimpleQueue[SyncWork | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="dledger-syncer", daemon=True)
        self._thread.start()
        self.busy = False

    @property
    def is_quick(self) -> bool:
        """Whether the disk has been so quick that `run` is better than `start`."""
        return self._average_s < QUICK_SYNC_S

    def run(self, work: SyncWork) -> DLedgerError | None:
        """Do a sync here and now; the error, if it failed."""
        started = self._clock()
        try:
            work.run()
        except DLedgerError as error:
            return error
        self._average_s += NEWEST_WEIGHT * (self._clock() - started - self._average_s)
        return None

    def start(self, work: SyncWork) -> None:
        """Begin a sync in the thread; `done` is called when it ended."""
        self.busy = True
        self._works.put(work)

    def close(self) -> None:
        """End the thread once the running sync, if any, has ended. Blocks that long."""
        self._works.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (work := self._works.get()) is not None:
            error = self.run(work)
            try:
                self._token.run_sync_soon(self._report, work, error)
            except trio.RunFinishedError:
                return  # the program ended while the disk was busy: nobody waits any more

    def _report(self, work: SyncWork, error: DLedgerError | None) -> None:
        self.busy = False
        self._done(work, error)
