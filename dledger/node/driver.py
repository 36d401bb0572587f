"""Runs a member under trio: takes its turns, keeps its deadlines, and runs its blocking work.

The member makes all decisions, in synchronous steps. A message or a finished sync takes its turn at
once, in the task that has it: waking the driver would cost every append two more rounds of the
loop. Submissions wait for the driver's task, so that all tasks that run before it share a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import trio

from dledger.core.handover import LeaderTransfer
from dledger.core.messages import Message
from dledger.core.replica import Outcomes
from dledger.entry import Body
from dledger.errors import DLedgerError, PeerFault
from dledger.network.ways import Ways
from dledger.node.member import Member, Runtime
from dledger.node.syncer import Syncer
from dledger.node.tally import Tally
from dledger.serving.host_timer import HostTimer
from dledger.serving.sync_threads import SyncThreads
from dledger.snapshots.beside import Continuation
from dledger.store.log_store import SyncWork
from dledger.unwrapping_nursery import unwrapping_nursery
from dledger.waits.blocking_work import IN_A_THREAD, RunBlocking
from dledger.waits.pending_appends import Done
from dledger.wake_up import WakeUp

T = TypeVar("T")

_NEVER = float("inf")


class Watches(Protocol):
    """Observes a member: the node."""

    def told(self, outcomes: Outcomes) -> None: ...

    def applied(self) -> None: ...

    def refused(self, fault: PeerFault) -> None: ...


class Driver:
    """The tasks of one member.

    Args:
        make: makes the member, given its runtime.
        ways: to its peers.
        timer: the alarm clock of all groups of the process.
        threads: run its syncs.
        watcher: observes the member.
        run_blocking: runs blocking work beside the loop.
    """

    def __init__(
        self,
        make: Callable[[Runtime], Member],
        ways: Ways,
        timer: HostTimer,
        threads: SyncThreads,
        watcher: Watches,
        run_blocking: RunBlocking = IN_A_THREAD,
    ) -> None:
        self._timer = timer
        self._run_blocking = run_blocking
        self.tally = Tally()
        self._syncer = Syncer(self._sync_ended, threads, self.tally)
        self._wake = trio.lowlevel.ParkingLot()
        self._woken = False
        self._apply = trio.lowlevel.ParkingLot()
        self._look = WakeUp()
        self._failure: Exception | None = None
        self._closed = False
        self._is_over = False  # closed or failed
        self._clock = trio.lowlevel.current_clock().current_time  # spares a look-up of the loop
        self._nursery: trio.Nursery | None = None
        self.alarm_at = _NEVER
        self.member = make(
            Runtime(
                ways,
                self._syncer,
                self._beside,
                self.wake,
                self._apply_soon,
                self._look.set,
                self._clock,
                watcher.told,
                watcher.applied,
                watcher.refused,
                self.tally,
            )
        )
        self._turn = self.member.turn

    # --- inputs, from any task of this thread -------------------------------------------------

    def received(self, sender: str, messages: Sequence[Message]) -> None:
        if self._is_over:
            return
        self._turn.received(sender, messages)
        self.turn(slices=False)

    def link_changed(self, peer: str, connected: bool) -> None:
        self._turn.link_changed(peer, connected)
        self.wake()

    def peer_gone(self, peer: str) -> None:
        """Note that the process of a peer seems to have ended: its machine refused a connection."""
        if self._turn.peer_gone(peer):
            self.turn()

    def submit(
        self, bodies: Sequence[Body], body_bytes: int, done: Done, at_once: bool = False
    ) -> None:
        """Append these bodies in the next turn; `at_once`: now, if no other append waits.

        With `at_once` it may begin a turn, so it must not be called in one (by a `done`, say).
        """
        if self._turn.submit(bodies, body_bytes, done):
            return
        if at_once and self._turn.appends_alone:
            self.turn()
        else:
            self.wake()

    def transfer_leadership(self, target: str | None) -> LeaderTransfer | None:
        """Begin to hand leadership over, from any task. Raises NotLeader or TransferFailed."""
        replica = self.member.replica
        # A late member may not have taken its turn yet. Do not count its delay as transfer time.
        replica.patience.look(now := self._clock())
        transfer = replica.transfer_leadership(target, now)
        self.wake()
        return transfer

    def wake(self) -> None:
        """Request a turn of the driver's task soon."""
        if not self._woken:
            self._woken = True
            self._wake.unpark()

    def fail(self, error: Exception) -> None:
        """End the driver, and with it the node: the member cannot go on."""
        self._failure = self._failure or error
        self._is_over = True
        self.wake()

    def _sync_ended(self, work: SyncWork, error: DLedgerError | None) -> None:
        self._turn.sync_ended(work, error)
        self.turn(slices=False)

    # --- the tasks ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Take turns, apply entries and do the housekeeping, for ever.

        Raises DiskFailed, InvariantBroken, MachineFailed or RestoreFailed if the member cannot go
        on.
        """
        try:
            async with unwrapping_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._apply_for_ever)
                nursery.start_soon(self._look_for_ever)
                await self._turn_for_ever()
        finally:
            self._nursery = None
            self.member.snapshots.ended()

    async def _turn_for_ever(self) -> None:
        self._timer.move(self, self._turn.next_deadline)
        while True:
            if not self._woken:
                await self._wake.park()
            self._woken = False
            self.turn()
            if self._failure is not None:
                raise self._failure
            if self._woken:
                await trio.lowlevel.checkpoint()

    async def _apply_for_ever(self) -> None:
        """Apply the entries that turns left over, a run at a time."""
        while True:
            while self._do(self.member.applier.apply_some):
                await trio.lowlevel.checkpoint()
            self._do(self.member.snapshots.awaited.restore_if_due)
            await self._apply.park()

    def _do(self, step: Callable[[], T]) -> T | None:
        """Run a step of the member, unless the driver has ended. An error ends the driver. Only the
        driver's own task raises it, so a node ends with one error.
        """
        if self._is_over:
            return None
        try:
            return step()
        except Exception as error:
            self.fail(error)
            return None

    async def _look_for_ever(self) -> None:
        while True:
            now = self._clock()
            self._do(partial(self.member.look, now))
            with trio.move_on_at(max(now, self.member.next_look_at)):
                await self._look.wait()

    def _apply_soon(self) -> None:
        self._apply.unpark()

    def _beside(self, work: Callable[[], Continuation]) -> None:
        if self._nursery is not None and not self._closed:
            self._nursery.start_soon(self._run_beside, work)

    async def _run_beside(self, work: Callable[[], Continuation]) -> None:
        try:
            go_on = await self._run_blocking(work)
        except Exception as error:
            self.fail(error)
        else:
            self._do(go_on)

    def close(self) -> None:
        """Take no more turns. A running sync goes on."""
        self._closed = self._is_over = True

    async def closed(self, last: Callable[[], None], patience_s: float) -> bool:
        return await self._syncer.close(last, patience_s)

    def turn(self, *, slices: bool = True) -> None:
        """Take a turn, from any task. An error ends the driver; its own task raises it.

        `slices`: see Turn; True in tasks that run once in a pass of the loop.
        """
        if self._is_over:
            return
        try:
            deadline = self._turn.turn(self._clock(), slices=slices)
            if deadline < self.alarm_at:
                self._timer.move(self, deadline)
        except Exception as error:
            self.fail(error)

    def alarm(self, now: float) -> None:
        """Take a turn if a deadline passed; it may have moved back since the alarm was set."""
        if self._is_over:
            return
        try:
            self._timer.move(self, self._turn.alarm(now))
        except Exception as error:
            self.fail(error)
