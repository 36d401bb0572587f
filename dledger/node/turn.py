"""One turn of a member: receive, write, send, sync, apply, in one synchronous step.

Everything that arrived since the last turn is taken at once, so all of it shares one wake-up, one
write and one sync. What there is to do stands on the member's agenda: each part marks its step when
it has something, and the turn visits the marked steps, in their order, until none is left.

The time is passed in as `now`. Effects go through the objects that the turn is given: the ways to
the peers, and the sync schedule. The driver of a node, the simulation and the tests run it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, Protocol, TypeVar

from dledger.core.admission.standing import Standing
from dledger.core.agenda import (
    ALL,
    APPLY,
    ASK,
    CONFIRM,
    FOLLOWER_SYNC,
    INSTALL,
    LEADER_SYNC,
    PLAN,
    PROPOSE,
    RECEIVE,
    REPLICATE,
    SEND,
    TELL,
    TICK,
    WRITE,
)
from dledger.core.entry_handler import Write
from dledger.core.messages import (
    InstallSnapshot,
    Message,
    Phase,
    PushRequest,
)
from dledger.core.orphans import Orphans
from dledger.core.replica import Outcomes, Replica
from dledger.entry import Body, Magic
from dledger.errors import DLedgerError, PeerFault, Rejected
from dledger.network.ways import Way, Ways
from dledger.node.submissions import Submissions
from dledger.node.sync_schedule import SyncSchedule
from dledger.node.tally import Tally
from dledger.store.log_store import SyncWork
from dledger.waits.pending_appends import Done, PendingAppends

T = TypeVar("T")

# While so many appends wait, a leader takes in the next ones as its disk works: waking the loop
# afterwards costs each of them less than they would wait for the sync. With a thousand in flight
# that is a tenth more appends a second; with a quarter of that it makes no difference.
SYNCS_BESIDE_ENTRIES: Final = 512

_NOW = float("-inf")
_APPEND = Phase.APPEND


class WritesLog(Protocol):
    """Writes to the store what the replica decides: see LogWriter."""

    def carry_out(self, write: Write) -> None: ...

    def append(self, term: int, magic: Magic, bodies: Sequence[Body], first: int) -> int:
        """Append a leader's own entries, the first at `first`; return the last index."""


class KeepsStanding(Protocol):
    """The store of the member's folder: records its standing, and its orphans."""

    @property
    def standing(self) -> Standing: ...

    def set_standing(self, standing: Standing) -> None:
        """Record another standing; durable on return."""

    @property
    def orphans(self) -> Orphans | None: ...

    def set_orphans(self, orphans: Orphans | None) -> None:
        """Record other orphans; durable on return."""


class CutsPushes(Protocol):
    """Keeps the bytes of pushes: see Batches."""

    def payload(self, first: int, end: int) -> bytes: ...

    def sent(self, index: int) -> None:
        """Note that all peers were sent the entries before `index`."""


class MovesSnapshots(Protocol):
    """Carries snapshots between members: see SnapshotTransfer."""

    def send(self, link: Way, peer: str, message: InstallSnapshot) -> None:
        """Send a message of the core; a piece is sent once it was read."""

    def turn(self, replica: Replica, *, sync_runs: bool) -> None:
        """Write the pieces that the core has, and tell it which are written."""


class Turn:
    """The steps of one member, in their order; no other code writes to its replica and store.

    Any method may raise DiskFailed, LogCorrupt, MachineFailed or InvariantBroken: the member
    cannot go on.

    Args:
        replica: decides.
        store, writer, batches: the log.
        pending: appends that wait to be committed.
        ways: to the peers.
        syncs: decides when a sync begins, and has it run.
        transfer: of snapshots.
        tell: called with the outcomes of reads and changes, and when the role, the leader or the
            group has changed.
        apply: called when entries can be applied; it applies some, and has the rest applied soon.
        refused: called with the fault of a message that no correct member sends.
        clock: the time, for the steps after a sync that the turn waited for.
        tally: counts.
        takes: whether the disk has room for so many bytes of the leader's entries. If not, the turn
            drops the push, and the leader sends it again.

    Attributes:
        agenda: the steps that are due.
        submissions: appends that no turn has taken yet.
    """

    def __init__(
        self,
        replica: Replica,
        store: KeepsStanding,
        writer: WritesLog,
        batches: CutsPushes,
        pending: PendingAppends,
        ways: Ways,
        syncs: SyncSchedule,
        transfer: MovesSnapshots,
        tell: Callable[[Outcomes], None],
        apply: Callable[[float], None],
        refused: Callable[[PeerFault], None],
        clock: Callable[[], float],
        tally: Tally,
        takes: Callable[[int], bool] = lambda _size: True,
    ) -> None:
        self._replica = replica
        self._patience = replica.patience
        self.agenda = replica.agenda
        self._store = store
        self._writer = writer
        self._batches = batches
        self._pending = pending
        self._ways = ways
        self.syncs = syncs
        self._transfer = transfer
        self._tell = tell
        self._refused = refused
        self._clock = clock
        self.tally = tally
        self._takes = takes
        self._inbox: list[tuple[str, Sequence[Message]]] = []
        self._link_changes: list[tuple[str, bool]] = []
        self._gone: list[tuple[str, int]] = []  # leaders whose process ended, and their terms
        self._ended_syncs: list[tuple[SyncWork, DLedgerError | None]] = []
        self.submissions = Submissions()
        self._waiting = self.submissions.waiting  # spares a look-up, a turn
        self._led_term: int | None = None
        self._last_proposed = 0  # how many entries the last proposal had
        self._holds_back = False  # whether a slice was appended, and the next one has to wait
        self._runs = False  # whether a turn is being taken
        self._now = 0.0
        self._steps: dict[int, Callable[[float], None]] = {
            RECEIVE: self.receive,
            TICK: replica.tick,
            INSTALL: self.install,
            WRITE: self.write,
            PROPOSE: self.propose,
            CONFIRM: replica.confirm_reads,
            REPLICATE: replica.replicate,
            ASK: replica.ask,
            SEND: self.send,
            FOLLOWER_SYNC: self.sync,
            TELL: self.tell,
            APPLY: apply,
            LEADER_SYNC: self.sync,
            PLAN: self.plan,
        }

    # --- inputs, kept for the next turn ---------------------------------------------------------

    def received(self, sender: str, messages: Sequence[Message]) -> None:
        self._inbox.append((sender, messages))
        self.agenda.due |= RECEIVE

    def link_changed(self, peer: str, connected: bool) -> None:
        self._link_changes.append((peer, connected))
        self.agenda.due |= RECEIVE

    def peer_gone(self, peer: str) -> bool:
        """Note that the process of a peer seems to have ended; return whether it is the leader."""
        if peer != self._replica.state.leader:
            return False
        self._gone.append((peer, self._replica.state.term))
        self.agenda.due |= RECEIVE
        return True

    def sync_ended(self, work: SyncWork, error: DLedgerError | None) -> None:
        self._ended_syncs.append((work, error))
        self.agenda.due |= RECEIVE

    def submit(self, bodies: Sequence[Body], body_bytes: int, done: Done) -> bool:
        """Append these bodies in the next turn; return True if the present turn appends them.

        A caller that appends one entry after another submits the next one when it hears of the
        last one's end, in the turn that applied it.
        """
        self.submissions.add(bodies, body_bytes, done)
        if self._runs and self.appends_alone:
            self.agenda.due |= PROPOSE
            return True
        return False

    @property
    def appends_alone(self) -> bool:
        """Whether one entry is to be appended, and no other caller seems to append.

        Another caller's append may follow at once, and would have to wait for another sync. So the
        last proposal must have had one entry as well. In a group of one voter that proves nothing,
        since each append is done before the next one comes: then this is False.
        """
        only = self._last_proposed == 1 and self.submissions.is_one_entry
        return only and not self._pending.entries and not self._replica.elector.is_alone

    def reject_submissions(self, error: DLedgerError) -> None:
        """Answer each submission that has not entered the log with a copy of `error`."""
        for done in self.submissions.take_all():
            done(error.again())

    def request_sync(self) -> None:
        """Have what was written synced."""
        leads = self._replica.leadership.acks is not None
        self.agenda.due |= LEADER_SYNC if leads else FOLLOWER_SYNC

    # --- a turn -------------------------------------------------------------------------------

    def turn(self, now: float, *, slices: bool = True) -> float:
        """Visit every step that is due; return the next deadline.

        `slices`: whether the loop has done other work since the last slice of submissions, so that
        the next one may be appended. Several messages can have a turn each in one pass of the loop.
        """
        self._begin(now)
        if self._waiting and (slices or not self._holds_back):
            self.agenda.due |= PROPOSE
        self.run(now)
        if self._now - self._patience.lost_s >= self.agenda.wakes_at:
            self.plan(now)  # what was due in this turn has been done
        return self.next_deadline

    def run(self, now: float, steps: int = ALL) -> None:
        """Visit those of `steps` that are due, and those that they make due."""
        self._now, self._runs = now, True
        agenda, visit = self.agenda, self._steps
        while due := agenda.due & steps:
            step = due & -due
            agenda.due ^= step
            visit[step](self._now)
        self._runs = False

    def _begin(self, now: float) -> None:
        """Note the time, and what it makes due."""
        self._now = now
        patience, agenda = self._patience, self.agenda
        patience.look(now)
        agenda.due |= agenda.later
        agenda.later = 0
        if now - patience.lost_s >= agenda.wakes_at:
            agenda.due |= TICK | REPLICATE | ASK | PLAN
        if self.syncs.may_wait and now >= self.syncs.next_deadline:
            self.request_sync()

    def plan(self, _now: float) -> None:
        """Look at all deadlines: the earliest one has passed, or was put off."""
        self.agenda.wakes_at = self._replica.earliest_deadline()

    @property
    def next_deadline(self) -> float:
        """When the next turn is due at the latest; minus infinity: now."""
        if self._holds_back:
            return _NOW
        patience = self._patience
        deadline = self.agenda.wakes_at
        if patience.lost_s:
            deadline = patience.due(deadline)
        deadline = min(deadline, patience.next_look_at)
        if self.syncs.may_wait:
            return min(deadline, self.syncs.next_deadline)
        return deadline

    def alarm(self, now: float) -> float:
        """Take a turn if a deadline has passed; return the next deadline."""
        self._patience.look(now)
        self.plan(now)
        deadline = self.next_deadline
        return deadline if deadline > now else self.turn(now)

    # --- the steps, public for tests that look at the core between them -------------------------

    def receive(self, now: float) -> None:
        """Give the replica everything that arrived."""
        replica = self._replica
        if self._link_changes:
            for peer, connected in _taken(self._link_changes):
                (replica.reachable if connected else replica.unreachable)(peer, now)
        inbox, self._inbox = self._inbox, []
        for sender, messages in inbox:
            for message in messages:
                if isinstance(message, PushRequest) and not self._has_room_for(message):
                    continue
                try:
                    replica.receive(sender, message, now)
                except PeerFault as fault:
                    self._refused(fault)
        if self._gone:
            for leader, term in _taken(self._gone):
                replica.leader_gone(leader, term, now)
        if self._ended_syncs:
            for work, error in _taken(self._ended_syncs):
                self._sync_ended(work, error)
                self.request_sync()  # for what was written meanwhile

    def _has_room_for(self, push: PushRequest) -> bool:
        return not push.payload or self._takes(len(push.payload))

    def install(self, _now: float) -> None:
        """Move the pieces of a snapshot from the leader to the disk, and its answers back."""
        self._transfer.turn(self._replica, sync_runs=self.syncs.busy)
        self._replica.following.answer_snapshots()

    def write(self, _now: float) -> None:
        """Write what the replica decided; it becomes durable with the next sync."""
        writes, hard_state = self._replica.take_writes()
        for write in writes:
            self._writer.carry_out(write)
        if hard_state is not None:
            self.syncs.hard_state_due = hard_state
        if (standing := self._replica.admission.standing) is not self._store.standing:
            self._store.set_standing(standing)
        if (orphans := self._replica.handler.orphans) != self._store.orphans:
            self._store.set_orphans(orphans)
        self.request_sync()

    def propose(self, _now: float) -> None:
        """Append a slice of the submissions if this member leads; else reject them all."""
        waiting, replica = self.submissions, self._replica
        self._holds_back = False
        waiting.drop_failed(replica.state.term)
        if not self._waiting:
            return
        submissions = waiting.slice()
        bodies = list(chain.from_iterable([bodies for bodies, _, _ in submissions]))
        try:
            replica.check_proposable()
            first, term = replica.view.last_index + 1, replica.state.term
            # Before the replica counts them: a full disk refuses them, and the member goes on.
            self._writer.append(term, Magic.NORMAL, bodies, first)
        except Rejected as error:
            self.reject_submissions(error)
            return
        replica.propose(len(bodies))
        self.agenda.due |= LEADER_SYNC
        waiting.took(submissions, first, term)
        self._holds_back = bool(self._waiting)  # the loop has other work before the next slice
        self._last_proposed = len(bodies)
        add, size = self._pending.add, 0
        for batch, body_bytes, done in submissions:
            last = first + len(batch) - 1
            add(first, last, term, body_bytes, done)
            first = last + 1
            size += body_bytes
        self.tally.appended_entries += len(bodies)
        self.tally.appended_bytes += size

    def send(self, _now: float) -> None:
        """Send the messages in the outbox, before a leader's own sync: an append waits for the
        followers' syncs.
        """
        link_to, pushes = self._ways.link_to, False
        for peer, message in self._replica.outbox.take():
            pushed = isinstance(message, PushRequest) and message.phase is _APPEND
            pushes |= pushed
            way = link_to(peer)
            if way is None:
                continue
            if isinstance(message, PushRequest) and pushed:
                payload = self._batches.payload(message.prev_index + 1, message.last_index)
                way.send(message, payload)
            elif isinstance(message, InstallSnapshot):
                self._transfer.send(way, peer, message)
            else:
                way.send(message)
        if pushes and (peers := self._replica.dispatchers):
            self._batches.sent(min([peer.next_index for peer in peers.values()]))

    def sync(self, now: float) -> None:
        """Begin a sync if one is due; end it, too, if the disk is so quick that the loop waits.

        Only a leader has appends that wait.
        """
        syncs, replica = self.syncs, self._replica
        replica.awaits_disk(now)
        if syncs.may_wait and (written := syncs.written_that_counts(now)) is not None:
            self._begin(now)
            replica.persisted(*written, None, now)
        if not syncs.is_due(now):
            return
        if not syncs.loop_waits or self._pending.entries >= SYNCS_BESIDE_ENTRIES:
            syncs.start(now)
            return
        ended = syncs.run(now, leads=replica.leadership.acks is not None)
        if ended is None:
            return  # it goes on in its thread
        self._begin(self._clock())  # the sync may have taken long
        self._sync_ended(*ended)

    def _sync_ended(self, work: SyncWork, error: DLedgerError | None) -> None:
        if error is not None:
            raise error
        self.syncs.ended(work)
        self._replica.persisted(work.index, work.epoch, work.hard_state, self._now)

    def tell(self, _now: float) -> None:
        """Answer the appends of a leadership that has ended, and tell what has changed."""
        state = self._replica.state
        leading = state.term if self._replica.leadership.acks is not None else None
        if leading != self._led_term:
            self._led_term = leading
            self._pending.end_leadership(state.committed, self._replica.view.term_at, state.leader)
        self._tell(self._replica.take_outcomes())


def _taken(items: list[T]) -> Sequence[T]:
    """Return the items, and empty the list."""
    taken = items[:]
    items.clear()
    return taken
