"""A node: one member of a group, running. What an application opens and talks to."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import outcome
import trio

from dledger.applier import Applier
from dledger.batches import Batches
from dledger.client_server import ClientServer
from dledger.config import NodeConfig, parse_address
from dledger.core.member_state import Role
from dledger.core.replica import Messages, Replica, ReplicaConfig
from dledger.driver import Driver
from dledger.entry import Body, Entry, body_bytes, decode_entries
from dledger.errors import (
    DiskFailed,
    DLedgerError,
    EntryTooLarge,
    LogFull,
    NodeClosing,
    ReadUnavailable,
)
from dledger.iterators import CommittedEntries, RoleChanges
from dledger.links import Identity, Link
from dledger.listener import Listener
from dledger.log_writer import LogWriter
from dledger.pending import Appended, Done, Outcome, PendingAppends
from dledger.push_check import PushCheck
from dledger.state_machine import StateMachine
from dledger.status import PeerStatus, RoleChange, Status
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.transfer_wait import wait_transferred
from dledger.waiting_reads import WaitingReads

logger = logging.getLogger(__name__)

# How often the record of what is committed is brought up to date, for readers of the folder, and
# a spare segment is written if one is wanted. A full segment takes longer than this to fill.
HOUSEKEEPING_INTERVAL_S = 1.0

# What `committed` hands out between two checkpoints.
_ITERATE_BYTES = 256 * 1024


class Node:
    """A running member. Made by `open_node`; every method is for the node's own trio thread."""

    def __init__(self, config: NodeConfig, store: SegmentStore, machine: StateMachine) -> None:
        self.config = config
        self._store = store
        self._closing = False
        self._pending = PendingAppends()
        self._batches = Batches(store, config.max_batch_bytes)
        self._replica = Replica(
            ReplicaConfig(
                config.node_id,
                sorted(config.peers),
                config.election_timeout_ms / 1000,
                config.heartbeat_interval_ms / 1000,
                config.max_clock_drift,
                config.preferred_leader,
            ),
            store.view(),
            store.hard_state,
            self._batches,
            random.Random().random,
            trio.current_time(),
        )
        self._turned = trio.lowlevel.ParkingLot()
        self._progress = trio.lowlevel.ParkingLot()
        self._role_watchers = trio.lowlevel.ParkingLot()
        self._role = self._role_now()
        identity = Identity(config.group, config.node_id)
        self._links = {
            peer: Link(identity, peer, parse_address("peers", address), self._link_changed)
            for peer, address in config.peers.items()
            if peer != config.node_id
        }
        writer = LogWriter(store, self._batches)
        self._driver = Driver(
            self._replica,
            store,
            writer,
            self._batches,
            self._pending,
            self._links,
            self._after_turn,
        )
        self._reads = WaitingReads(self._driver.request_read, self._replica.config.read_wait_s)
        self._applier = Applier(
            self._replica, writer.cache, machine, self._pending, self._after_apply
        )
        self._listener = Listener(
            identity,
            frozenset(config.peers),
            self._driver.received,
            lambda: PushCheck(store),
            ClientServer(self).serve,
        )

    # --- appending ----------------------------------------------------------------------------

    def submit(self, bodies: Sequence[Body], done: Done) -> None:
        """Append entries without a task; `done` is called once with what became of them.

        The entries lie next to each other in the log. `done(outcome)` gets a list of Appended, or
        an error of the DLedgerError tree that says whether the outcome is certain. It is called
        in this thread, soon after the entries are applied here, and must not raise.

        Raises, when nothing was admitted: NotLeader, LeadershipMoving, LogFull, EntryTooLarge,
        NodeClosing.
        """
        self._check_open()
        self._replica.check_proposable()
        total = self._admit(bodies)
        self._driver.submit(bodies, total, done)

    async def append(self, body: Body) -> Appended:
        """Append one entry; returns once it is committed and applied here.

        Cancelling gives up the wait, not the append. Raises as `submit`, and LeadershipLost,
        Discarded or NodeClosed for what became of an admitted entry.
        """
        return (await self.append_many((body,)))[0]

    async def append_many(self, bodies: Sequence[Body]) -> list[Appended]:
        """Append entries next to each other; returns once all are committed and applied here.

        Cancelling gives up the wait, not the append. Raises as `append`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if not bodies:
            return []
        waiter: trio.lowlevel.Task | None = trio.lowlevel.current_task()

        def done(result: Outcome) -> None:
            if waiter is not None:
                trio.lowlevel.reschedule(waiter, outcome.Value(result))

        def abandon(_: object) -> trio.lowlevel.Abort:
            nonlocal waiter
            waiter = None
            return trio.lowlevel.Abort.SUCCEEDED

        self.submit(bodies, done)
        result: Outcome = await trio.lowlevel.wait_task_rescheduled(abandon)
        if isinstance(result, DLedgerError):
            raise result
        return result

    def _check_open(self) -> None:
        if self._closing:
            raise NodeClosing

    def _admit(self, bodies: Sequence[Body]) -> int:
        """The bytes of these bodies, if there is room for them now."""
        total = 0
        for body in bodies:
            size = len(body) if type(body) is bytes else body_bytes(body)
            if size > self.config.store.max_body_bytes:
                raise EntryTooLarge(size, self.config.store.max_body_bytes)
            total += size
        entries = self._pending.entries + self._driver.queued_entries
        waiting = self._pending.body_bytes + self._driver.queued_bytes
        # A submission larger than the whole room is let in alone, or it could never be.
        full = entries + len(bodies) > self.config.max_pending_entries
        if entries and (full or waiting + total > self.config.max_pending_bytes):
            raise LogFull(entries, waiting)
        return total

    # --- reading ------------------------------------------------------------------------------

    async def read(self) -> int:
        """Wait until the state machine is as new as anything acknowledged before this call.

        A linearizable read: call this, then look at the state machine (ReadIndex, Raft thesis
        6.4). Works on any member: one that does not lead asks the leader. Returns the index the
        state includes, within four election timeouts, or raises ReadUnavailable or NodeClosing; a
        read changes nothing, so trying again is always safe.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        return await self._reads.wait()

    def read_stale(self, *, max_lag_s: float) -> int:
        """The index that the state machine includes, if it is not older than `max_lag_s`.

        The state then holds everything that the leader had committed when it sent the last
        heartbeat that is worked off here, and that heartbeat arrived within `max_lag_s` seconds. A
        heartbeat that the network held up counts from its arrival: `read` has no such gap.

        Raises ReadUnavailable: ask again later, or use `read`.
        """
        self._check_open()
        lag_s = trio.current_time() - self._replica.fresh_as_of
        if lag_s > max_lag_s:
            raise ReadUnavailable(
                f"the state here is {lag_s:.3g} s old, {max_lag_s:g} were allowed"
            )
        return self._replica.state.applied

    def committed(self, start: int = 0) -> CommittedEntries:
        """Every committed entry from `start` on (no-ops too), then each new one, without end."""
        first = max(start, self._store.first_index)
        return CommittedEntries(
            first, lambda index: self.entries(index, _ITERATE_BYTES), self.wait_appliable
        )

    def entries(self, first: int, max_bytes: int) -> list[Entry]:
        """Committed entries from `first`, as many as fit into `max_bytes` (at least one, if there
        is one).
        """
        last = self._replica.appliable
        first = max(first, self._store.first_index)
        if first > last:
            return []
        return decode_entries(self._store.read(first, last, max_bytes))

    def read_bytes(self, pos: int, size: int) -> bytes:
        """`size` bytes of the log at `pos`; for those who keep positions of committed entries."""
        return self._store.read_bytes(pos, size)

    async def wait_applied(self, index: int) -> None:
        """Wait until the state machine has everything up to `index`."""
        while self._replica.state.applied < index:
            await self._progress.park()

    async def wait_appliable(self, index: int) -> None:
        """Wait until the entry at `index` is committed and durable here."""
        while self._replica.appliable < index:
            await self._progress.park()

    # --- leading ------------------------------------------------------------------------------

    async def transfer_leadership(self, target: str | None = None) -> str:
        """Hand leadership to `target`, or to the member with the longest log; the new leader.

        Appends are rejected meanwhile (LeadershipMoving: try again). After one election timeout
        without success this member goes on as leader. Cancelling gives up the wait, not the
        transfer. With this node's own name a running transfer is given up, and nothing else.

        Raises NotLeader, NodeClosing, or TransferFailed with the reason.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        transfer = self._replica.transfer_leadership(target, trio.current_time())
        self._driver.wake()
        if transfer is None:
            return self.config.node_id
        return await wait_transferred(self._replica, transfer, self._turned)

    def forget_leader(self) -> None:
        """Take the leader for lost, because something outside (a supervisor, say) knows it is.

        This member then votes for another at once, not only when the leader has been silent for an
        election timeout. The next heartbeat of a leader undoes it. No effect on a leader.

        Raises LeaderKept where lease reads are on (`max_clock_drift`).
        """
        self._replica.forget_leader()
        self._driver.wake()

    # --- looking ------------------------------------------------------------------------------

    @property
    def term(self) -> int:
        """The term this node is in."""
        return self._replica.state.term

    @property
    def is_ready_leader(self) -> bool:
        """Whether this node leads and has applied an entry of its own term: it may serve."""
        replica = self._replica
        return (
            replica.state.role is Role.LEADER
            and replica.view.term_at(replica.state.applied) == replica.state.term
        )

    def role_changes(self) -> RoleChanges:
        """Who leads, now and after each change. A slow reader sees the latest, not every one."""
        return RoleChanges(lambda: self._role, self._role_watchers)

    def status(self) -> Status:
        """What this node knows about itself and the others."""
        replica, state = self._replica, self._replica.state
        transfer = replica.handover.transfer
        return Status(
            group=self.config.group,
            node_id=self.config.node_id,
            role=state.role.value,
            ready=self.is_ready_leader,
            term=state.term,
            leader=state.leader,
            first_index=self._store.first_index,
            last_index=replica.view.last_index,
            durable=state.durable,
            committed=state.committed,
            applied=state.applied,
            pending_entries=self._pending.entries + self._driver.queued_entries,
            pending_bytes=self._pending.body_bytes + self._driver.queued_bytes,
            transfer_target=transfer.target if transfer is not None else None,
            peers={peer: self._peer_status(link) for peer, link in self._links.items()},
        )

    def _peer_status(self, link: Link) -> PeerStatus:
        dispatcher = self._replica.dispatchers.get(link.peer)
        return PeerStatus(
            connected=link.connected,
            phase=dispatcher.phase.name if dispatcher else None,
            match_index=dispatcher.match_index if dispatcher else None,
            next_index=dispatcher.next_index if dispatcher else None,
            problem=link.last_problem,
        )

    # --- the node's own tasks -----------------------------------------------------------------

    async def _start(self, nursery: trio.Nursery) -> None:
        listeners = await self._listener.open(self.config.address)
        nursery.start_soon(self._listener.serve, listeners)
        for link in self._links.values():
            nursery.start_soon(link.run)
        nursery.start_soon(self._driver.run)
        nursery.start_soon(self._applier.run)
        nursery.start_soon(self._keep_house)

    def _stop(self) -> None:
        self._closing = True
        self._driver.close()
        self._pending.close()
        self._reads.close()
        self._driver.reject_submissions(NodeClosing())
        self._store.note_committed(self._replica.appliable)

    async def _keep_house(self) -> None:
        recorded = -1
        spares = True
        while True:
            await trio.sleep(HOUSEKEEPING_INTERVAL_S)
            if self._replica.appliable > recorded:
                recorded = self._replica.appliable
                self._store.note_committed(recorded)
                self._store.save_committed()
            if spares and self._store.spare_wanted:
                try:
                    await trio.to_thread.run_sync(self._store.prepare_spare)
                except DiskFailed as error:
                    spares = False  # segments can be made without them, only slower
                    logger.warning("going on without spare segments: %s", error)

    def _link_changed(self, peer: str, connected: bool) -> None:
        self._driver.link_changed(peer, connected)

    def _after_turn(self, messages: Messages) -> None:
        self._reads.after_turn(messages.reads_ready, messages.reads_lost)
        self._turned.unpark_all()
        if self._replica.appliable > self._replica.state.applied:
            # The first run at once: waiting for the applier's turn costs every append a wake-up.
            self._applier.apply_some()
            self._applier.wake()
            self._progress.unpark_all()
        self._reads.applied_to(self._replica.state.applied)
        self._publish_role()

    def _after_apply(self) -> None:
        self._reads.applied_to(self._replica.state.applied)
        self._progress.unpark_all()
        self._publish_role()

    def _role_now(self) -> RoleChange:
        state = self._replica.state
        return RoleChange(state.role.value, state.term, state.leader, self.is_ready_leader)

    def _publish_role(self) -> None:
        role = self._role_now()
        if role != self._role:
            self._role = role
            self._role_watchers.unpark_all()


@asynccontextmanager
async def open_node(config: NodeConfig, machine: StateMachine) -> AsyncIterator[Node]:
    """Open a member of a group: recover its log, listen, take part; stop at the block's end.

    The state machine is given every committed entry from the log's beginning.

    Raises a Fatal error at once (ConfigInvalid, AddressInUse, DataFolderMismatch,
    DataFolderLocked, LogCorrupt, DiskFailed), or out of the block when the node cannot go on
    (DiskFailed, MachineFailed, InvariantBroken); the block is cancelled then.
    """
    store = await trio.to_thread.run_sync(
        lambda: open_store(
            OsDisk(), str(config.data_dir), config.store, config.group, config.node_id
        )
    )
    if store.recovered.cut is not None:
        logger.warning("recovery cut the log's end: %s", store.recovered.cut)
    try:
        async with _unwrapping_nursery() as nursery:
            node = Node(config, store, machine)
            try:
                await node._start(nursery)
                yield node
            finally:
                node._stop()
                nursery.cancel_scope.cancel()
    finally:
        store.close()


@asynccontextmanager
async def _unwrapping_nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery that raises a lone exception as itself: one cause, one plain error."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        alone: BaseException = group
        while isinstance(alone, BaseExceptionGroup) and len(alone.exceptions) == 1:
            alone = alone.exceptions[0]
        if alone is group:
            raise
        raise alone from alone.__cause__
