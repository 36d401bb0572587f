"""One turn of a member: handles everything that arrived, in one synchronous step.

A turn takes all messages, finished syncs, submissions and reads since the last one, gives them to
the replica, carries out its writes, sends its messages, starts a sync if one is due, and has
committed entries applied. So all entries that arrived meanwhile share one wake-up, one write and
one sync.

The time is passed in as `now`. Effects go through the objects that the turn is given: the ways to
the peers, and the sync schedule. The driver of a node, the simulation and the tests run it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Protocol, TypeVar

from dledger.core.admission.standing import Standing
from dledger.core.entry_handler import Write
from dledger.core.messages import (
    InstallSnapshot,
    Message,
    Phase,
    PushRequest,
)
from dledger.core.orphans import Orphans
from dledger.core.outbox import Outgoing
from dledger.core.replica import Messages, Replica
from dledger.entry import Body, Magic
from dledger.errors import DLedgerError, PeerFault, Rejected
from dledger.network.ways import Way, Ways
from dledger.node.submissions import Submissions
from dledger.node.sync_schedule import SyncSchedule
from dledger.node.tally import Tally
from dledger.store.log_store import SyncWork
from dledger.waits.pending_appends import PendingAppends

T = TypeVar("T")

_NOTHING = Messages((), (), ())
_NOW = float("-inf")


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

    def turn(self, replica: Replica, *, sync_runs: bool) -> bool:
        """Write the pieces that the core has, and tell it which are written; return whether any
        were.
        """


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
        after_turn: called at the end with the outcome of reads, and whether to apply appliable
            entries now; if not, another call follows soon.
        refused: called with the fault of a message that no correct member sends.
        clock: the time, for the steps after a sync that the turn waited for.
        tally: counts.
        takes: whether the disk has room for so many bytes of the leader's entries. If not, the turn
            drops the push, and the leader sends it again.

    Attributes:
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
        after_turn: Callable[[Messages, bool], None],
        refused: Callable[[PeerFault], None],
        clock: Callable[[], float],
        tally: Tally,
        takes: Callable[[int], bool] = lambda _size: True,
    ) -> None:
        self._replica = replica
        self._patience = replica.patience
        self._store = store
        self._writer = writer
        self._batches = batches
        self._pending = pending
        self._ways = ways
        self.syncs = syncs
        self._transfer = transfer
        self._after_turn = after_turn
        self._refused = refused
        self._clock = clock
        self.tally = tally
        self._takes = takes
        self._inbox: list[tuple[str, Sequence[Message]]] = []
        self._link_changes: list[tuple[str, bool]] = []
        self._gone: list[tuple[str, int]] = []  # leaders whose process ended, and their terms
        self._ended_syncs: list[tuple[SyncWork, DLedgerError | None]] = []
        self.submissions = Submissions()
        self._waiting = self.submissions.waiting  # spares ten calls in a lone append
        self.submit = self.submissions.add
        self._proposed = False  # whether a slice was appended, and the next one has to wait
        self._reads: list[int] = []
        self._led_term: int | None = None
        self._rested = False  # whether the last turn left nothing to do before a deadline
        self._deadline = 0.0  # while it rests: when the next turn is due at the latest
        self._last_proposed = 0  # how many entries the last proposal had

    # --- inputs, kept for the next turn ---------------------------------------------------------

    def received(self, sender: str, messages: Sequence[Message]) -> None:
        self._inbox.append((sender, messages))

    def link_changed(self, peer: str, connected: bool) -> None:
        self._link_changes.append((peer, connected))

    def peer_gone(self, peer: str) -> bool:
        """Note that the process of a peer seems to have ended; return whether it is the leader."""
        if peer != self._replica.state.leader:
            return False
        self._gone.append((peer, self._replica.state.term))
        return True

    @property
    def appends_alone(self) -> bool:
        """Whether one entry is to be appended, and no other caller seems to append.

        Another caller's append may follow at once, and would have to wait for another sync. So the
        last proposal must have had one entry as well. In a group of one voter that proves nothing,
        since each append is done before the next one comes: then this is False.
        """
        only = self._last_proposed == 1 and self.submissions.is_one_entry
        return only and not self._pending.entries and not self._replica.elector.is_alone

    def request_read(self, ticket: int) -> None:
        self._reads.append(ticket)

    def sync_ended(self, work: SyncWork, error: DLedgerError | None) -> None:
        self._ended_syncs.append((work, error))

    def reject_submissions(self, error: DLedgerError) -> None:
        """Answer each submission that has not entered the log with a copy of `error`."""
        for done in self.submissions.take_all():
            done(error.again())

    # --- a turn -------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float:
        """When the next turn is due at the latest; minus infinity: now."""
        if self._proposed and self._waiting:
            return _NOW  # the next slice
        deadline, look_at = self._replica.next_deadline(), self._patience.next_look_at
        if look_at < deadline:  # noqa: PLR1730  # min() costs a call, once a turn
            deadline = look_at
        if self.syncs.may_wait:
            return min(deadline, self.syncs.next_deadline)
        return deadline

    def turn(self, now: float, *, slices: bool = True) -> float:
        """Take everything that arrived, and act on it; return the next deadline.

        `slices`: whether the loop has done other work since the last slice of submissions, so that
        the next one may be appended. Several messages can have a turn each in one pass of the loop.
        """
        replica = self._replica
        self._proposed = self._proposed and not slices
        self._patience.look(now)
        synced = bool(self._ended_syncs)  # entries that were written meanwhile may count
        rests = bool(self._inbox) and self._rested and now < self._deadline
        if self.take_inputs(now) or not rests or replica.has_work:
            return self._whole_turn(now, synced)
        if replica.outbox.has_ready:
            self._send(replica.outbox.take())
        if replica.acks is None:
            self._deadline = self.next_deadline  # a heartbeat has put off the election
        return self._deadline

    def _whole_turn(self, now: float, works: bool) -> float:
        """Do all steps of a turn if `works`, or if there is work for them; return the next
        deadline.
        """
        replica = self._replica
        self._rested = False
        works = works or self._has_work(now)
        if not works:
            self._deadline = self.next_deadline
            if self._deadline <= now:
                replica.tick(now)  # most often only heartbeats are due
                self._deadline = self.next_deadline
                works = self._deadline <= now or self._has_work(now)
        if not works:
            if replica.outbox.has_ready:
                self._send(replica.outbox.take())
            if replica.appliable > replica.state.applied:
                self._after_turn(_NOTHING, True)
            if not self.appends_alone:
                self._rested = True
                return self._deadline
            now = self._look_again()  # the client may already have submitted its next append
        replica.tick(now)
        self.act_and_sync(now)
        return self.next_deadline

    def _has_work(self, now: float) -> bool:
        """Return whether there is work before the next deadline besides sending and applying."""
        if self._waiting or self._replica.has_work:
            return True
        return self.syncs.is_due(now)

    def alarm(self, now: float) -> float:
        """Take a turn if a deadline has passed; return the next deadline."""
        self._patience.look(now)
        deadline = self.next_deadline
        return deadline if deadline > now else self.turn(now)

    def act_and_sync(self, now: float) -> None:
        """Act on the inputs, and do the sync that is due if the loop waits for it.

        The patience has looked at `now`.
        """
        syncs = self._act(now)
        while self._counts_more(syncs, now):
            now = self._look_again()
            ended = bool(self._ended_syncs)
            if ended:
                self.take_inputs(now)
            if ended or self._replica.acks is not None:  # else nothing has moved a deadline
                self._replica.tick(now)
            syncs = self._act(now)

    def _look_again(self) -> float:
        """Return the time after a step that may have taken long."""
        now = self._clock()
        self._patience.look(now)
        return now

    # --- the steps of a turn, public for tests that look at the core between them ---------------

    def take_inputs(self, now: float) -> bool:
        """Give the replica everything that arrived. Return False if only answers are left to send,
        provided that there was nothing to do before.
        """
        replica = self._replica
        works = bool(self._waiting or self._ended_syncs or self._reads or self._gone)
        if self._link_changes:
            works = True
            for peer, connected in _taken(self._link_changes):
                (replica.reachable if connected else replica.unreachable)(peer, now)
        if self._inbox:
            for sender, messages in _taken(self._inbox):
                for message in messages:
                    if isinstance(message, PushRequest) and not self._has_room_for(message):
                        continue
                    try:
                        if replica.receive(sender, message, now):
                            works = True
                    except PeerFault as fault:
                        self._refused(fault)
        if self._gone:
            for leader, term in _taken(self._gone):
                replica.leader_gone(leader, term, now)
        if self._ended_syncs:
            for work, error in _taken(self._ended_syncs):
                if error is not None:
                    raise error
                self.syncs.ended(work)
                replica.persisted(work.index, work.epoch, work.hard_state, now)
        if self._reads:
            for ticket in _taken(self._reads):
                replica.request_read(ticket)
        return self._transfer.turn(replica, sync_runs=self.syncs.busy) or works

    def _has_room_for(self, push: PushRequest) -> bool:
        return not push.payload or self._takes(len(push.payload))

    def carry_out_writes(self) -> None:
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

    def propose(self) -> None:
        """Append a slice of the submissions if this member leads; else reject them all."""
        if not self._waiting:
            return
        waiting = self.submissions
        waiting.drop_failed(self._replica.state.term)
        if not self._waiting or self._proposed:
            return
        submissions = waiting.slice()
        bodies = list(chain.from_iterable([bodies for bodies, _, _ in submissions]))
        replica = self._replica
        try:
            replica.check_proposable()
            first, term = replica.view.last_index + 1, replica.state.term
            # Before the replica counts them: a full disk refuses them, and the member goes on.
            self._writer.append(term, Magic.NORMAL, bodies, first)
        except Rejected as error:
            self.reject_submissions(error)
            return
        replica.propose(len(bodies))
        waiting.took(submissions, first, term)
        self._proposed = bool(self._waiting)  # the loop has other work before the next slice
        self._last_proposed = len(bodies)
        add, size = self._pending.add, 0
        for batch, body_bytes, done in submissions:
            last = first + len(batch) - 1
            add(first, last, term, body_bytes, done)
            first = last + 1
            size += body_bytes
        self.tally.appended_entries += len(bodies)
        self.tally.appended_bytes += size

    def send_messages(self, now: float) -> Messages:
        """Send the messages that the replica has ready."""
        messages = self._replica.take_messages(now)
        self._send(messages.outgoing)
        if peers := self._replica.dispatchers:
            self._batches.sent(min([peer.next_index for peer in peers.values()]))
        return messages

    def _send(self, outgoing: Sequence[Outgoing]) -> None:
        link_to = self._ways.link_to
        for peer, message in outgoing:
            way = link_to(peer)
            if way is None:
                continue
            if isinstance(message, PushRequest) and message.phase is Phase.APPEND:
                payload = self._batches.payload(message.prev_index + 1, message.last_index)
                way.send(message, payload)
            elif isinstance(message, InstallSnapshot):
                self._transfer.send(way, peer, message)
            else:
                way.send(message)

    def fail_lost_appends(self) -> None:
        """Answer the appends of a leadership that has ended."""
        state = self._replica.state
        leading = state.term if self._replica.acks is not None else None
        if leading != self._led_term:
            self._led_term = leading
            self._pending.end_leadership(state.committed, self._replica.view.term_at, state.leader)

    def _act(self, now: float) -> bool:
        """Write, propose, send and apply; return whether the loop has to do a sync now."""
        self.carry_out_writes()
        self.propose()
        # Send before our own sync: an append waits for the followers' syncs.
        messages = self.send_messages(now)
        syncs = self.syncs.is_due(now)
        if syncs and not self.syncs.loop_waits:
            self.syncs.start(now)
            syncs = False
        self.fail_lost_appends()
        # A follower applies after its sync: the leader waits for the sync, and no peer for
        # applying.
        self._after_turn(messages, not syncs or self._replica.acks is not None)
        return syncs

    def _counts_more(self, syncs: bool, now: float) -> bool:
        """Sync if `syncs`, and tell the replica what is durable; return whether to act again."""
        if (written := self.syncs.written_that_counts(now)) is not None:
            self._replica.persisted(*written, None, now)
            return True
        if not syncs:
            return False
        replica = self._replica
        leads = replica.acks is not None
        if (ended := self.syncs.run(now, leads=leads)) is None:
            # The sync goes on in its thread. A follower still has to apply.
            return not leads
        work, error = ended
        if error is None and work.hard_state is None:
            self.syncs.ended(work)
            now = self._look_again()
            replica.persisted(work.index, work.epoch, None, now)
            # A follower has put off applying until it has answered.
            if not leads or replica.appliable > replica.state.applied:
                return True
            return self._has_work(now) or replica.outbox.has_ready or now >= self.next_deadline
        self._ended_syncs.append((work, error))
        return True


def _taken(items: list[T]) -> Sequence[T]:
    """Return the items, and empty the list."""
    taken = items[:]
    items.clear()
    return taken
