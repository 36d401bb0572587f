"""Makes writes durable in a thread of its own, one sync at a time.

While one sync runs the next batch gathers, so the cost of a sync is shared by everything that
arrived meanwhile (group commit).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import trio

from dledger.errors import DLedgerError
from dledger.store.log_store import SyncWork

SyncDone = Callable[[SyncWork, DLedgerError | None], None]


class Syncer:
    """One thread that runs one SyncWork at a time and reports in the trio thread."""

    def __init__(self, done: SyncDone) -> None:
        self._done = done
        self._token = trio.lowlevel.current_trio_token()
        # A queue of one: the driver never starts a sync before the last one was reported.
        self._works: queue.SimpleQueue[SyncWork | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="dledger-syncer", daemon=True)
        self._thread.start()
        self.busy = False

    def start(self, work: SyncWork) -> None:
        """Begin a sync; `done` is called when it ended."""
        self.busy = True
        self._works.put(work)

    def close(self) -> None:
        """End the thread once the running sync, if any, has ended. Blocks that long."""
        self._works.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            error: DLedgerError | None = None
            try:
                work.run()
            except DLedgerError as raised:
                error = raised
            try:
                self._token.run_sync_soon(self._report, work, error)
            except trio.RunFinishedError:
                return  # the program ended while the disk was busy: nobody waits any more

    def _report(self, work: SyncWork, error: DLedgerError | None) -> None:
        self.busy = False
        self._done(work, error)
