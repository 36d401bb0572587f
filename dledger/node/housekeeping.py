"""What a node does in the background: records the commit, keeps a spare file, scrubs the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from dledger.errors import DiskFailed
from dledger.store.scrubber import Scrubber, ScrubStatus
from dledger.store.segment_store import SegmentStore
from dledger.waits.blocking_work import IN_A_THREAD, RunBlocking

logger = logging.getLogger(__name__)

# How often the commit index is recorded (what recovery then refuses to cut), and whether a spare
# segment is wanted is looked at. A full segment takes longer than this to fill.
INTERVAL_S = 1.0

# The same while nothing new is committed: a process may have a hundred idle groups.
IDLE_INTERVAL_S = 5.0

# Checked in one go: well under a millisecond of the event loop.
_SCRUB_STEP_BYTES = 128 * 1024
# Checked in one interval at most, whatever the log's size: about 2 % of a core.
_MAX_SCRUB_BYTES = 4 * 1024 * 1024


class Housekeeper:
    """The node's slow task.

    Args:
        store: the node's store.
        appliable: how far the log is committed and durable here.
        scrub_period_s: a pass over the whole log takes about this long; 0 switches it off.
        run_blocking: makes spare files.
    """

    def __init__(
        self,
        store: SegmentStore,
        appliable: Callable[[], int],
        scrub_period_s: float,
        run_blocking: RunBlocking = IN_A_THREAD,
    ) -> None:
        self._run_blocking = run_blocking
        self._store = store
        self._appliable = appliable
        self._scrub_period_s = scrub_period_s
        self._scrubber = Scrubber(store)
        self._due_bytes = 0.0
        self._recorded = -1
        self._makes_spares = True

    @property
    def scrub(self) -> ScrubStatus:
        """What the scrubber found so far."""
        return self._scrubber.status

    def scrub_every(self, period_s: float) -> None:
        """Take so long for a pass from now on; 0: no more of them."""
        self._scrub_period_s = period_s

    async def run(self) -> None:
        """Keep house, for ever. Raises DiskFailed if the commit index cannot be recorded."""
        interval_s = INTERVAL_S
        while True:
            await trio.sleep(interval_s)
            recorded = self._record_committed()
            await self._make_spare()
            if self._scrub_period_s:
                await self._scrub(interval_s)
            interval_s = INTERVAL_S if recorded else IDLE_INTERVAL_S

    def _record_committed(self) -> bool:
        """Record the commit index, if it is another one."""
        appliable = self._appliable()
        if appliable <= self._recorded:
            return False
        self._recorded = appliable
        self._store.note_committed(appliable)
        self._store.save_committed()
        return True

    async def _make_spare(self) -> None:
        if not self._makes_spares or not self._store.spare_wanted:
            return
        try:
            await self._run_blocking(self._store.prepare_spare)
        except DiskFailed as error:
            self._makes_spares = False  # segments can be made without them, only slower
            logger.warning("going on without spare segments: %s", error)

    async def _scrub(self, interval_s: float) -> None:
        """Check what has become due: a share of the log in each interval."""
        log_bytes = self._store.end_pos - self._store.begin_pos
        due = self._due_bytes + log_bytes * interval_s / self._scrub_period_s
        self._due_bytes = min(due, _MAX_SCRUB_BYTES)
        known = self.scrub.damage
        step = max(1, min(log_bytes, _SCRUB_STEP_BYTES))
        while self._due_bytes >= step:
            checked = self._scrubber.step(self._appliable(), step)
            self._due_bytes -= checked
            if not checked:
                break  # a pass ended
            await trio.lowlevel.checkpoint()
        damage = self.scrub.damage
        if damage is not None and known is None:
            logger.error(
                "the log on disk is damaged: %s; stop this node and run `dledger repair` with the "
                "folder of a member that is intact",
                damage,
            )
