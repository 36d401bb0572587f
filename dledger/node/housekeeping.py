"""Housekeeping of a node: records the commit index, keeps a spare segment, scrubs the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.errors import DiskFailed
from dledger.snapshots.beside import Beside, Continuation
from dledger.store.disk_room import DiskRoom
from dledger.store.scrubber import Scrubber, ScrubStatus
from dledger.store.segment_store import SegmentStore

logger = logging.getLogger(__name__)

# How often the commit index is recorded, for readers of the folder, and a missing spare segment is
# noticed. A record is a write of 512 bytes without a sync, and a segment takes longer
# than this to fill.
INTERVAL_S = 0.25

# How often the next sync makes the record durable as well: recovery refuses to cut below it. That
# sync then has one more file to sync.
DURABLE_INTERVAL_S = 1.0

# How often the housekeeper looks while no new entry is committed, unless it is roused: a process
# may have a hundred idle groups.
IDLE_INTERVAL_S = 5.0

# Bytes checked in one step, which holds up the event loop for well under a millisecond.
_SCRUB_STEP_BYTES = 128 * 1024
# The most bytes checked in one interval, for any size of the log: about 2 % of a core.
_MAX_SCRUB_BYTES = 4 * 1024 * 1024


class Housekeeper:
    """Does the node's housekeeping. Call `look` at `next_look_at`.

    Attributes:
        next_look_at: when to call `look`.
        is_idle: whether no entry was committed lately, so that the next look is far away.

    Args:
        store: the node's store.
        appliable: the last entry that is committed and durable here.
        scrub_period_s: a pass over the whole log takes about this long; 0 switches it off.
        beside: writes spare segments beside the loop.
        now: when the node starts.
        room: checked in each interval.
    """

    def __init__(
        self,
        store: SegmentStore,
        appliable: Callable[[], int],
        scrub_period_s: float,
        beside: Beside,
        now: float,
        room: DiskRoom,
    ) -> None:
        self._store = store
        self._appliable = appliable
        self._scrub_period_s = scrub_period_s
        self._beside = beside
        self._room = room
        self._scrubber = Scrubber(store)
        self._due_bytes = 0.0
        self._recorded = -1
        self._durable = -1  # the commit index that the next sync makes durable
        self._durable_at = now + DURABLE_INTERVAL_S
        self._makes_spares = True
        self._makes_one = False
        self._looked_at = now
        self._interval_at = now + INTERVAL_S
        self.next_look_at = self._interval_at
        self.is_idle = False

    @property
    def scrub(self) -> ScrubStatus:
        return self._scrubber.status

    def scrub_every(self, period_s: float) -> None:
        """Set the time of a pass in seconds; 0 switches scrubbing off."""
        self._scrub_period_s = period_s

    def rouse(self, now: float) -> None:
        """Request a look now: an entry was committed while the node was idle."""
        self.is_idle = False
        self._interval_at = self.next_look_at = now

    def look(self, now: float) -> None:
        """Do what is due, a little at a time: `next_look_at` may be now again.

        Raises DiskFailed if the commit index cannot be recorded.
        """
        if now >= self._interval_at:
            if self._room.look(now) and not self._room.is_short:
                self._makes_spares = True
            self.is_idle = not (self._record_committed(now) or self._room.is_short)
            self._make_spare()
            if self._scrub_period_s:
                log_bytes = self._store.end_pos - self._store.begin_pos
                share = (now - self._looked_at) / self._scrub_period_s
                self._due_bytes = min(self._due_bytes + log_bytes * share, _MAX_SCRUB_BYTES)
            else:
                self._due_bytes = 0.0
            self._looked_at = now
            self._interval_at = now + (IDLE_INTERVAL_S if self.is_idle else INTERVAL_S)
        self.next_look_at = now if self._scrub_step() else self._interval_at

    def _record_committed(self, now: float) -> bool:
        """Record the commit index if it has grown; return False if that had been done, durably."""
        appliable = self._appliable()
        if appliable <= min(self._recorded, self._durable):
            return False
        becomes_durable = appliable > self._durable and now >= self._durable_at
        if becomes_durable:
            self._durable, self._durable_at = appliable, now + DURABLE_INTERVAL_S
        if becomes_durable or appliable > self._recorded:
            self._store.note_committed(appliable)
            if self._store.save_committed(in_next_sync=becomes_durable):
                self._recorded = appliable
        return True

    def _make_spare(self) -> None:
        if self._makes_one or not self._makes_spares or not self._store.spare_wanted:
            return
        if not self._room.has_room_beside(self._store.segment_bytes):
            return
        self._makes_one = True

        def make() -> Continuation:
            try:
                self._store.prepare_spare()
            except DiskFailed as error:
                problem = error
                return lambda: self._go_without_spares(problem)
            return self._made_spare

        self._beside(make)

    def _made_spare(self) -> None:
        self._makes_one = False

    def _go_without_spares(self, error: DiskFailed) -> None:
        self._makes_one = self._makes_spares = False  # new segments take longer without a spare
        logger.warning("going on without spare segments: %s", error)

    def _scrub_step(self) -> bool:
        """Check one step of the log if due; return whether there may be more to check."""
        log_bytes = self._store.end_pos - self._store.begin_pos
        step = max(1, min(log_bytes, _SCRUB_STEP_BYTES))
        if self._due_bytes < step:
            return False
        known = self.scrub.damage
        checked = self._scrubber.step(self._appliable(), step)
        self._due_bytes -= checked
        damage = self.scrub.damage
        if damage is not None and known is None:
            logger.error(
                "the log on disk is damaged: %s; stop this node and run `dledger repair` with the "
                "folder of a member that is intact",
                damage,
            )
        return checked > 0  # else a pass ended
