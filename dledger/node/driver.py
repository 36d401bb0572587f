"""Runs a member under trio: wakes it, keeps its deadlines, and waits for what blocks.

Everything that is decided is decided by the member, in synchronous steps. One task turns for what
was submitted; news from peers and disk are turned at once, by the task that has them: waking the
driver for them would cost every append two more rounds of the loop. Submissions wait for the
driver, so that all tasks that run before it share a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import trio

from dledger.core.messages import Heartbeat, HeartbeatResponse, Message
from dledger.core.replica import Messages
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

T = TypeVar("T")

_NEVER = float("inf")


class Watches(Protocol):
    """Looks at a member whenever it has moved."""

    def turned(self, messages: Messages) -> None:
        """A turn ended; what it found comes to be applied now."""
        ...

    def applied(self) -> None:
        """The state machine has more."""
        ...

    def refused(self, fault: PeerFault) -> None:
        """A message was refused that no correct member sends."""
        ...


class Driver:
    """The tasks of one member.

    Args:
        make: makes the member, given its surroundings.
        ways: to its peers.
        timer: wakes up for all groups of the process.
        threads: wait for the disk.
        watcher: looks at what the member did.
        run_blocking: does beside the loop what would hold it up.
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
        self._look = trio.Event()
        self._failure: Exception | None = None
        self._closed = False
        self._nursery: trio.Nursery | None = None
        self.alarm_at = _NEVER
        self.member = make(
            Runtime(
                ways,
                self._syncer,
                self._beside,
                self.wake,
                self._apply_soon,
                self._look_soon,
                trio.current_time,
                watcher.turned,
                watcher.applied,
                watcher.refused,
                self.tally,
            )
        )
        self._turn = self.member.turn

    # --- inputs, from any task of this thread -------------------------------------------------

    def received(self, sender: str, messages: Sequence[Message]) -> None:
        """Messages of one peer arrived."""
        if self._is_over:
            return
        self._turn.received(sender, messages)
        self.turn()

    def heartbeat(self, sender: str, beat: Heartbeat, now: float) -> None:
        """A heartbeat arrived, among those of other groups."""
        self.received(sender, (beat,))

    def heartbeat_answered(self, sender: str, answer: HeartbeatResponse, now: float) -> None:
        """An answer to one arrived, among those of other groups."""
        self.received(sender, (answer,))

    def link_changed(self, peer: str, connected: bool) -> None:
        """The connection to a peer opened or broke."""
        self._turn.link_changed(peer, connected)
        self.wake()

    def peer_gone(self, peer: str) -> None:
        """The process of a peer has ended, as far as can be seen from here."""
        if self._turn.peer_gone(peer):
            self.turn()

    def submit(
        self, bodies: Sequence[Body], body_bytes: int, done: Done, at_once: bool = False
    ) -> None:
        """Append these bodies in the next turn; `at_once`: now, if nobody else appends.

        Then it must not be called in a turn (by a `done`, say): it would begin another one.
        """
        self._turn.submit(bodies, body_bytes, done)
        if not (at_once and self._turn.appends_alone) or self._is_over:
            self.wake()
            return
        try:
            self._turn.act_and_sync(trio.current_time())
            self._timer.move(self, self._turn.next_deadline)
        except Exception as error:
            self.fail(error)

    def wake(self) -> None:
        """There is something to do."""
        if not self._woken:  # else it is on its way already
            self._woken = True
            self._wake.unpark()

    def fail(self, error: Exception) -> None:
        """The member cannot go on: end the driver, and with it the node."""
        self._failure = self._failure or error
        self.wake()

    @property
    def _is_over(self) -> bool:
        return self._closed or self._failure is not None

    def _sync_ended(self, work: SyncWork, error: DLedgerError | None) -> None:
        self._turn.sync_ended(work, error)
        self.turn()

    # --- the tasks ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Turn, apply and look after the member, for ever.

        Raises DiskFailed, InvariantBroken, MachineFailed or RestoreFailed: it cannot go on.
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
        """Apply what is left of long runs, a run at a time."""
        while True:
            while self._do(self.member.applier.apply_some):
                await trio.lowlevel.checkpoint()
            self._do(self.member.snapshots.awaited.restore_if_due)
            await self._apply.park()

    def _do(self, step: Callable[[], T]) -> T | None:
        """Take a step of the member, unless it is over; the driver's own task raises what fails,
        and no other: a node ends with one error.
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
            now = trio.current_time()
            self._look = trio.Event()
            self._do(partial(self.member.look, now))
            with trio.move_on_at(max(now, self.member.next_look_at)):
                await self._look.wait()

    def _apply_soon(self) -> None:
        self._apply.unpark()

    def _look_soon(self) -> None:
        self._look.set()

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
        """Turn no more. A sync that runs goes on."""
        self._closed = True

    async def closed(self, last: Callable[[], None], patience_s: float) -> bool:
        """Do `last` beside the loop, behind a sync that still runs. As Syncer.close."""
        return await self._syncer.close(last, patience_s)

    def turn(self) -> None:
        """Take a turn, in any task that has news; the driver's own task raises what fails."""
        if self._is_over:
            return
        try:
            self._timer.move(self, self._turn.turn(trio.current_time()))
        except Exception as error:
            self.fail(error)

    def alarm(self, now: float) -> None:
        """A deadline passed, or has moved back since."""
        if self._is_over:
            return
        try:
            self._turn.alarm(now)
            self._timer.move(self, self._turn.next_deadline)
        except Exception as error:
            self.fail(error)
