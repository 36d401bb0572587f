"""One member of a group, synchronous: without trio and without threads.

Puts together the turn, the applier, snapshots, reads and housekeeping. The node, the simulation and
the tests run it: they pass a Runtime, call the member when a message arrives or a deadline passes,
and do all the waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dledger.changes import changes_of
from dledger.config import WATCH_HISTORY_BYTES
from dledger.core.agenda import INSTALL, REPLICATE
from dledger.core.entry_dispatcher import BatchSizer
from dledger.core.replica import Outcomes, Replica
from dledger.core.snapshot.snapshot_offer import PIECE_BYTES, SnapshotSource
from dledger.errors import PeerFault
from dledger.network.ways import Ways
from dledger.node.applier import Applier
from dledger.node.housekeeping import Housekeeper
from dledger.node.log_writer import MAX_RUN_ENTRIES, Batches, LogWriter, NoopBodies, empty_noop
from dledger.node.sync_schedule import RunsSyncs, SyncSchedule
from dledger.node.tally import Tally
from dledger.node.turn import Turn, WritesLog
from dledger.node_end import NodeEnd
from dledger.sessions.with_sessions import application_of
from dledger.snapshots.beside import Beside
from dledger.snapshots.node_snapshots import Snapshots
from dledger.snapshots.restoring import Opened, incoming_for
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.snapshots.snapshot_source import NodeSnapshots
from dledger.snapshots.snapshotter import Surroundings
from dledger.state_machine import StateMachine
from dledger.status import role_name
from dledger.store.incoming_snapshot import SYNC_BYTES
from dledger.waits.change_history import ChangeHistory
from dledger.waits.pending_appends import PendingAppends
from dledger.waits.pending_reads import PendingReads
from dledger.waits.read_problem import ReadFacts

# Makes the replica from the member's batch sizer and snapshot source.
MakeReplica = Callable[[BatchSizer, SnapshotSource], Replica]


class MemberSettings(NamedTuple):
    """The settings of a member besides those of its replica.

    Attributes:
        group: the name of its group.
        max_batch_bytes: the limit of one push.
        flush_interval_s: how long a sync may wait; None if it may not wait.
        snapshots: when they are written, and how many are kept.
        scrub_period_s: a check of the whole log takes about this long; 0 switches it off.
        piece_bytes: the size of the pieces of a snapshot that is sent.
        snapshot_sync_bytes: a snapshot that arrives is synced each time so much of it is written.
        run_entries: the most entries that are applied in one call.
        pass_over: entries that are not applied to the machine.
        watch_history_bytes: the limit of the changes that are kept for watches.
    """

    group: str
    max_batch_bytes: int
    flush_interval_s: float | None
    snapshots: SnapshotPolicy
    scrub_period_s: float
    piece_bytes: int = PIECE_BYTES
    snapshot_sync_bytes: int = SYNC_BYTES
    run_entries: int = MAX_RUN_ENTRIES
    pass_over: frozenset[int] = frozenset()
    watch_history_bytes: int = WATCH_HISTORY_BYTES


class Runtime(NamedTuple):
    """The surroundings of a member, given by the node, the simulation or a test.

    Attributes:
        ways: to its peers.
        syncer: runs its syncs.
        beside: runs blocking work beside the loop.
        wake: requests a turn soon.
        wake_applier: requests a call of `apply_some` soon.
        wake_look: requests a call of `look` soon.
        clock: the time now, monotonic, in seconds.
        told: called with the outcomes of reads and changes, and when the role, the leader or the
            group has changed.
        applied: called after each run of entries that was applied.
        refused: called with the fault of a message that no correct member sends.
        tally: counters.
        watched: wraps the log, for tests that observe the writes.
    """

    ways: Ways
    syncer: RunsSyncs
    beside: Beside
    wake: Callable[[], None]
    wake_applier: Callable[[], None]
    wake_look: Callable[[], None]
    clock: Callable[[], float]
    told: Callable[[Outcomes], None]
    applied: Callable[[], None]
    refused: Callable[[PeerFault], None]
    tally: Tally
    watched: Callable[[WritesLog], WritesLog] = lambda log: log


class Member:
    """The synchronous part of a member.

    Attributes:
        store: the log.
        tally: counters.
        turn: takes messages, submissions and finished syncs.
        replica: the protocol's state.
        batches: cuts the log into pushes.
        pending: waiting appends.
        reads: waiting reads.
        history: the changes that the state machine reported; None if it reports none.
        applier: feeds the state machine.
        snapshots: writes, sends, receives and restores snapshots.
        room: whether its disk has room for entries.
        housekeeper: records the commit index, makes spare segments, scrubs.

    `noop_body` makes the body of a leader's no-op.
    """

    def __init__(
        self,
        settings: MemberSettings,
        opened: Opened,
        machine: StateMachine,
        make_replica: MakeReplica,
        around: Runtime,
        noop_body: NoopBodies = empty_noop,
    ) -> None:
        self.store = store = opened.store
        self.tally = around.tally
        self._around = around
        self.batches = Batches(store, settings.max_batch_bytes)
        source = NodeSnapshots(store, settings.piece_bytes)
        self.replica = replica = make_replica(self.batches, source)
        self.pending = PendingAppends()
        self.snapshots = Snapshots(
            Surroundings(
                settings.group,
                opened,
                machine,
                source,
                replica,
                around.ways,
                around.beside,
                self._snapshot_moved,
                around.wake_look,
            ),
            settings.snapshots,
            incoming_for(opened, settings.group, machine, settings.snapshot_sync_bytes),
            self.pending,
            self._restored,
        )
        self.room = opened.room
        self.writer = LogWriter(store, self.batches, noop_body)
        patience_s = replica.config.election_timeout_s
        self.turn = Turn(
            replica,
            store,
            around.watched(self.writer),
            self.batches,
            self.pending,
            around.ways,
            SyncSchedule(store, around.syncer, settings.flush_interval_s, patience_s),
            self.snapshots.transfer,
            self._tell,
            self._apply,
            around.refused,
            around.clock,
            around.tally,
            opened.room.takes,
        )
        self.reads = PendingReads(self._begin_read, self.read_facts, replica.config.read_wait_s)
        self._application = application_of(machine)
        self.history: ChangeHistory | None = None
        if (changes := changes_of(self._application)) is not None:
            limit, applied = settings.watch_history_bytes, replica.state.applied
            self.history = ChangeHistory(changes, limit, applied)
        self.applier = Applier(
            replica,
            self.writer.cache,
            machine,
            self.pending,
            self.snapshots.awaited,
            self._applied,
            around.wake_applier,
            around.clock,
            settings.run_entries,
            settings.pass_over,
            self.history,
        )
        self.housekeeper = Housekeeper(
            store,
            lambda: replica.appliable,
            settings.scrub_period_s,
            around.beside,
            around.clock(),
            opened.room,
        )

    @property
    def next_look_at(self) -> float:
        return min(self.housekeeper.next_look_at, self.snapshots.next_look_at)

    def look(self, now: float) -> None:
        """Do the snapshot work and housekeeping that is due, a little at a time."""
        if now >= self.housekeeper.next_look_at:
            self.housekeeper.look(now)
            if self.store.record_due:
                self.turn.request_sync()
                self._around.wake()
        self.snapshots.look(now)

    def read_facts(self) -> ReadFacts:
        """Return the facts that explain why a read is not served."""
        state, awaited = self.replica.state, self.snapshots.awaited
        return ReadFacts(
            role_name(state),
            state.leader,
            state.term,
            self.replica.commits_in_own_term,
            state.applied,
            self.snapshots.installing,
            awaited.snapshot.header.index if awaited.snapshot is not None else None,
            awaited.is_restoring,
        )

    def close(self, end: NodeEnd) -> None:
        """Answer every caller that waits. No sync may begin afterwards: the store is closed."""
        self.snapshots.close(end)
        self.pending.close(end)
        self.reads.close(end)
        if self.history is not None:
            self.history.close()
        self.turn.reject_submissions(end.closing())
        self.store.note_committed(self.replica.appliable)

    def _begin_read(self, ticket: int) -> None:
        self.replica.request_read(ticket)
        self._around.wake()

    def _snapshot_moved(self) -> None:
        """Have a turn look at snapshots: a piece was written, or another one is to be sent."""
        self.replica.agenda.due |= INSTALL | REPLICATE
        self._around.wake()

    def _tell(self, outcomes: Outcomes) -> None:
        self.reads.take(outcomes.reads_ready, outcomes.reads_lost)
        self._around.told(outcomes)
        self.reads.applied_to(self.replica.state.applied)

    def _apply(self, _now: float) -> None:
        self.applier.begin()
        if self.applier.stopped is not None and self.pending.entries:
            self.pending.never_applied(self.replica.view.last_index, self.replica.state.leader)

    def _applied(self) -> None:
        self.snapshots.machine_stopped = self.applier.stopped
        self.reads.applied_to(self.replica.state.applied)
        self._around.applied()
        if self.housekeeper.is_idle:
            self.housekeeper.rouse(self._around.clock())
            self._around.wake_look()

    def _restored(self) -> None:
        self.applier.stopped = (
            None  # the snapshot's state includes the entries that it could not read
        )
        if self.history is not None:
            changes = changes_of(self._application)  # `restore` may have made another one
            self.history.restored(self.replica.state.applied, changes)
        self._applied()
        self._around.wake_applier()
