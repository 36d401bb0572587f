"""Makes writes durable, one sync at a time: at once while the disk is quick, else in a thread.

While one sync runs the next batch gathers, so the cost of a sync is shared by everything that
arrived meanwhile (group commit). A sync that takes a fraction of a millisecond is over sooner
than a thread is woken for it and heard from: then the event loop does it itself. A disk that
turns slow holds the loop up once; from then on its syncs run beside the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import trio

from dledger.errors import DLedgerError, InvariantBroken
from dledger.node.tally import Tally
from dledger.serving.sync_threads import SyncThreads
from dledger.store.log_store import SyncWork

SyncDone = Callable[[SyncWork, DLedgerError | None], None]

# Handing a sync to the thread costs about 0.2 ms of processor time, and as much of waiting. Up to
# a few times this it pays to wait, and nobody else in the process notices.
QUICK_SYNC_S = 0.002

# Weight of the newest sync in the average: one of 20 ms sends the next ten to the thread.
NEWEST_WEIGHT = 0.125


class Syncer:
    """Runs one SyncWork of its group at a time, and knows how long they take."""

    def __init__(self, done: SyncDone, threads: SyncThreads, tally: Tally) -> None:
        self._done = done
        self._clock = threads.clock
        self._tally = tally
        self._average_s = QUICK_SYNC_S  # a disk is slow until it has shown that it is quick
        self._token = trio.lowlevel.current_trio_token()
        self._threads = threads
        self._ended = threading.Event()
        self._ended.set()
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
        took_s = self._clock() - started
        self._average_s += NEWEST_WEIGHT * (took_s - self._average_s)
        self._tally.synced(took_s)
        return None

    def start(self, work: SyncWork) -> None:
        """Begin a sync in a thread; `done` is called when it ended."""
        self.busy = True
        self._ended.clear()
        self._threads.start(partial(self._run_beside, work))

    def close(self) -> None:
        """Wait until the running sync, if any, has ended. Blocks that long."""
        self._threads.wait(self._ended)

    def _run_beside(self, work: SyncWork) -> None:
        try:
            error = self.run(work)
        except Exception as cause:  # there is nobody above this who could be told
            error = InvariantBroken(f"a sync raised {cause!r}")
        self._ended.set()
        try:
            self._token.run_sync_soon(self._report, work, error)
        except trio.RunFinishedError:
            return  # the program ended while the disk was busy: nobody waits any more

    def _report(self, work: SyncWork, error: DLedgerError | None) -> None:
        self.busy = False
        self._done(work, error)
