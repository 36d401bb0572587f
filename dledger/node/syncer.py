"""Runs syncs, one at a time. The event loop waits for a quick disk, and not for a slow one.

While one sync runs the next batch gathers, so all entries that arrive meanwhile share a sync (group
commit). Syncs run in a thread. If one takes a fraction of a millisecond, it ends before the event
loop could be woken for it, so the loop waits for it, LONGEST_WAIT_S at most. A disk that turns slow
or hangs holds the loop up once for that time; then its syncs run beside the loop until they are
quick again.

Handing a sync to a thread and back takes 30 to 40 us, which delays a follower's answer. So a
follower that is the only member of its loop syncs a quick disk on the loop itself. If that disk
hangs, this member could neither acknowledge nor vote anyway, and it holds up no other member.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from dledger.errors import DLedgerError, InvariantBroken, ResourceRefused
from dledger.node.sync_schedule import Ended
from dledger.node.tally import Tally
from dledger.serving.sync_threads import SyncThreads
from dledger.store.log_store import SyncWork
from dledger.system_refusals import refusal_of

SyncDone = Callable[[SyncWork, DLedgerError | None], None]

# Waking the loop for a sync that ran beside it costs about 0.2 ms of processor time, and delays it
# by as much. For a sync of up to a few times this it is better to wait, and the process does not
# suffer.
QUICK_SYNC_S = 0.002

# The loop stands still for so long at most when a quick disk turns slow: a small part of the
# shortest election timeout, and ten times as long as a quick sync.
LONGEST_WAIT_S = 0.02

# Weight of the newest sync in the average: after one of 20 ms the next ten run beside the loop.
NEWEST_WEIGHT = 0.125


class _Loop:
    """Counts the members that run in one event loop, of any group and host."""

    def __init__(self) -> None:
        self.members = 0


_loop: trio.lowlevel.RunVar[_Loop] = trio.lowlevel.RunVar("dledger members")


def _members_of_this_loop() -> _Loop:
    try:
        return _loop.get()
    except LookupError:
        made = _Loop()
        _loop.set(made)
        return made


class Syncer:
    """Runs one SyncWork of its group at a time, and measures how long each takes.

    Attributes:
        busy: whether a sync runs beside the loop; `done` is called in the loop when it has ended.
    """

    def __init__(self, done: SyncDone, threads: SyncThreads, tally: Tally) -> None:
        self._done = done
        self._clock = threads.clock
        self._tally = tally
        self._average_s = QUICK_SYNC_S  # a disk counts as slow until it was quick
        self._token = trio.lowlevel.current_trio_token()
        self._threads = threads
        self.busy = False
        self._loop = _members_of_this_loop()
        self._loop.members += 1
        self._last: Callable[[], None] | None = None
        self._last_ended = trio.Event()
        self._last_error: Exception | None = None

    @property
    def is_quick(self) -> bool:
        return self._average_s < QUICK_SYNC_S

    @trio.lowlevel.enable_ki_protection  # Ctrl-C must not separate the loop from a running sync
    def run(self, work: SyncWork, *, leads: bool) -> Ended | None:
        if not leads and self._loop.members == 1:
            return Ended(work, self._error_of(work))
        ended: list[Ended] = []

        def sync() -> None:
            ended.append(Ended(work, self._error_of(work)))

        if self._threads.run(sync, lambda: self._tell(*ended[0]), LONGEST_WAIT_S):
            return ended[0]
        self.busy = True
        return None

    def start(self, work: SyncWork) -> None:
        self.busy = True
        self._threads.start(lambda: self._tell(work, self._error_of(work)))

    async def close(self, last: Callable[[], None], patience_s: float) -> bool:
        """Run `last` beside the loop once no sync runs; return whether it ended within
        `patience_s`.

        If not, it still runs when the disk allows it. Raises what `last` raised.
        """
        self._last = last
        self._loop.members -= 1
        if not self.busy:
            self._start_last()
        with trio.move_on_after(patience_s):
            await self._last_ended.wait()
        if self._last_error is not None:
            raise self._last_error
        return self._last_ended.is_set()

    # --- in a thread --------------------------------------------------------------------------

    def _error_of(self, work: SyncWork) -> DLedgerError | None:
        """Do the sync; return why it failed, if it did."""
        started = self._clock()
        try:
            work.run()
        except DLedgerError as error:
            return error
        except Exception as cause:  # raised in this thread, it would be lost
            if refusal_of(cause) is not None:
                return ResourceRefused(cause)
            return InvariantBroken(f"a sync raised {cause!r}")
        took_s = self._clock() - started
        self._average_s += NEWEST_WEIGHT * (took_s - self._average_s)
        self._tally.synced(took_s)
        return None

    def _tell(self, work: SyncWork, error: DLedgerError | None) -> None:
        try:
            self._token.run_sync_soon(self._report, work, error)
        except trio.RunFinishedError:  # the loop ended while the disk was busy
            if self._last is not None:
                self._run_last()

    def _run_last(self) -> None:
        assert self._last is not None
        try:
            self._last()
        except Exception as error:
            self._last_error = error
        try:
            self._token.run_sync_soon(self._last_ended.set)
        except trio.RunFinishedError:
            return  # nothing waits any more

    # --- in the loop --------------------------------------------------------------------------

    def _report(self, work: SyncWork, error: DLedgerError | None) -> None:
        self.busy = False
        try:
            self._done(work, error)
        finally:
            if self._last is not None:
                self._start_last()

    def _start_last(self) -> None:
        self._threads.start(self._run_last)
