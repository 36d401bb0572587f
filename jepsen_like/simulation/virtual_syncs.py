"""The syncs of one simulated member: on its loop, or beside it for as long as its disk takes."""

from __future__ import annotations

from collections.abc import Callable

from dledger.errors import DLedgerError
from dledger.node.sync_schedule import Ended
from dledger.store.log_store import SyncWork
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.invariants import Invariants


class VirtualSyncs:
    """Runs one sync at a time.

    Args:
        is_quick: whether the disk is quick enough to be waited for on the loop.
        counts_written: whether entries count on the member once they are written. Its machine
            does not lose its power in such a run.
        begin: has `run_begun` called when the disk does the sync.

    Attributes:
        limit: the last entry that the running sync covers and that was not truncated since.
    """

    def __init__(
        self,
        name: str,
        is_quick: bool,
        counts_written: bool,
        begin: Callable[[], None],
        invariants: Invariants,
        coverage: Coverage,
    ) -> None:
        self.is_quick = is_quick
        self.limit = -1
        self._name = name
        self._counts_written = counts_written
        self._begin = begin
        self._invariants = invariants
        self._coverage = coverage
        self._work: SyncWork | None = None
        self._has_run = False
        self._error: DLedgerError | None = None

    @property
    def busy(self) -> bool:
        return self._work is not None

    def run(self, work: SyncWork, *, leads: bool) -> Ended | None:
        self.limit = work.index
        self._coverage.count("quick syncs")
        return Ended(work, self._carry_out(work))

    def start(self, work: SyncWork) -> None:
        self._work, self.limit, self._has_run = work, work.index, False
        self._coverage.count("late flushes", self._counts_written)
        self._begin()

    def run_begun(self) -> tuple[SyncWork, DLedgerError | None]:
        """Do the sync that was begun, once; return it, and why it failed, if it did."""
        assert self._work is not None
        if not self._has_run:
            self._has_run = True
            self._error = self._carry_out(self._work)
        return self._work, self._error

    def ended(self) -> None:
        self._work = None

    def _carry_out(self, work: SyncWork) -> DLedgerError | None:
        try:
            work.run()
        except DLedgerError as error:
            return error
        self._invariants.synced(self._name, self.limit, work.hard_state)
        return None

    def written(self, index: int) -> None:
        """Note that entries up to `index` were written."""
        if self._counts_written:
            self._invariants.synced(self._name, index, None)
