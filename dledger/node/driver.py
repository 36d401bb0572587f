"""The one task that turns the protocol: everything that arrived, in one synchronous turn.

A turn takes all messages, finished syncs, submissions and reads since the last one, gives them to
the replica, carries out its writes, starts a sync if one is due, and hands out the messages. So
the cost of waking up, of a write and of a sync is shared by all entries that came meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

import trio

from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    Phase,
    PushRequest,
    PushResponse,
)
from dledger.core.replica import Messages, Replica
from dledger.core.uneventful import (
    acknowledged,
    answered_again,
    beat_again,
    hear_again,
    persisted_again,
)
from dledger.entry import Body, Magic
from dledger.errors import DLedgerError, Rejected
from dledger.network.links import Links
from dledger.node.batches import Batches
from dledger.node.log_writer import LogWriter
from dledger.node.sync_schedule import SyncSchedule
from dledger.node.syncer import Syncer
from dledger.node.tally import Tally
from dledger.serving.host_timer import HostTimer
from dledger.serving.sync_threads import SyncThreads
from dledger.snapshots.snapshot_transfer import SnapshotTransfer
from dledger.store.log_store import LogStore, SyncWork
from dledger.waits.pending_appends import Done, PendingAppends

T = TypeVar("T")

_NEVER = float("inf")
_NOTHING = Messages((), (), ())


class Driver:
    """Owns the replica and the store; nobody else writes to either."""

    def __init__(
        self,
        replica: Replica,
        store: LogStore,
        writer: LogWriter,
        batches: Batches,
        pending: PendingAppends,
        links: Links,
        timer: HostTimer,
        threads: SyncThreads,
        after_turn: Callable[[Messages, bool], None],
        transfer: SnapshotTransfer,
        flush_interval_s: float | None = None,
    ) -> None:
        self._replica = replica
        self._store = store
        self._batches = batches
        self._writer = writer
        self._pending = pending
        self._links = links
        self._timer = timer
        self._after_turn = after_turn
        self._transfer = transfer
        self.tally = Tally()
        syncer = Syncer(self._sync_ended, threads, self.tally)
        patience_s = replica.config.election_timeout_s
        self._syncs = SyncSchedule(store, syncer, flush_interval_s, patience_s)
        self._wake = trio.lowlevel.ParkingLot()
        self._woken = False
        self._failure: Exception | None = None
        self._closed = False
        self._turn_wanted_at = 0.0
        self.alarm_at = _NEVER
        self._inbox: list[tuple[str, Sequence[Message]]] = []
        self._link_changes: list[tuple[str, bool]] = []
        self._gone: list[tuple[str, int]] = []  # leaders, and the terms that they led
        self._ended_syncs: list[tuple[SyncWork, DLedgerError | None]] = []
        self._submissions: list[tuple[Sequence[Body], int, Done]] = []
        self._reads: list[int] = []
        self._led_term: int | None = None
        self._last_proposed = 0  # how many entries at once
        self.queued_entries = 0
        self.queued_bytes = 0

    # --- inputs, from any task of this thread -------------------------------------------------

    def received(self, sender: str, messages: Sequence[Message]) -> None:
        """Messages of one peer arrived."""
        if len(messages) == 1 and self._is_acknowledgement(sender, messages[0]):
            return
        self._inbox.append((sender, messages))
        self.turn()

    def _is_acknowledgement(self, sender: str, message: Message) -> bool:
        """Whether it was one that needs no turn; it is taken then."""
        if type(message) is not PushResponse or self._closed or self._failure is not None:
            return False
        try:
            if not acknowledged(self._replica, sender, message, trio.current_time()):
                return False
            if self._replica.appliable > self._replica.state.applied:
                self._after_turn(_NOTHING, True)
                self._timer.move(self, self._next_deadline())
        except Exception as error:
            self._fail(error)
        if self._appends_alone:  # the next one, of who was told of the last
            self._act_and_sync(trio.current_time())
        return True

    def heartbeat(self, sender: str, beat: Heartbeat, now: float) -> None:
        """A heartbeat arrived, among those of other groups: most of them need no turn."""
        try:
            link = self._links.link_to(sender)
            if link is not None and self._promise_is_durable:
                answer = hear_again(self._replica, sender, beat, now)
                if answer is not None:
                    link.send(answer)
                    return
        except Exception as error:
            self._fail(error)
        self.received(sender, (beat,))

    def heartbeat_answered(self, sender: str, answer: HeartbeatResponse, now: float) -> None:
        """An answer to one arrived, among those of other groups."""
        try:
            if answered_again(self._replica, sender, answer, now):
                return
        except Exception as error:
            self._fail(error)
        self.received(sender, (answer,))

    @property
    def _promise_is_durable(self) -> bool:
        """Whether no record of term and vote is on its way to the disk, or has yet to be."""
        return not (self._syncs.hard_state_due or self._syncs.busy or self._failure)

    def link_changed(self, peer: str, connected: bool) -> None:
        """The connection to a peer opened or broke."""
        self._link_changes.append((peer, connected))
        self.wake()

    def peer_gone(self, peer: str) -> None:
        """The process of a peer has ended, as far as can be seen from here."""
        if peer == self._replica.state.leader:
            self._gone.append((peer, self._replica.state.term))
            self.turn()

    def submit(
        self, bodies: Sequence[Body], body_bytes: int, done: Done, at_once: bool = False
    ) -> None:
        """Append these bodies in the next turn; `at_once`: now, if nobody else appends.

        Then it must not be called in a turn (by a `done`, say): it would begin another one.
        """
        self._submissions.append((bodies, body_bytes, done))
        self.queued_entries += len(bodies)
        self.queued_bytes += body_bytes
        self.tally.appended_entries += len(bodies)
        self.tally.appended_bytes += body_bytes
        if at_once and self._appends_alone:
            self._act_and_sync(trio.current_time())
        else:
            self.wake()

    @property
    def _appends_alone(self) -> bool:
        """Whether there is one entry to append, and nobody else seems to append any.

        Somebody else may be about to, who would then wait for another sync. So the last one must
        have been alone as well. Where this member decides by itself that says nothing: each is
        done before the next one comes.
        """
        only = self._last_proposed == len(self._submissions) == self.queued_entries == 1
        if not only or self._pending.entries or self._replica.elector.is_alone:
            return False
        return not self._closed and self._failure is None

    def request_read(self, ticket: int) -> None:
        """Begin a linearizable read in the next turn."""
        self._reads.append(ticket)
        self.wake()

    def wake(self) -> None:
        """There is something to do."""
        if not self._woken:  # else it is on its way already
            self._woken = True
            self._wake.unpark()

    def fail(self, error: Exception) -> None:
        """The store is of no use any more: end the driver, and with it the node."""
        self._failure = self._failure or error
        self.wake()

    def _sync_ended(self, work: SyncWork, error: DLedgerError | None) -> None:
        self._ended_syncs.append((work, error))
        self.turn()

    def reject_submissions(self, error: DLedgerError) -> None:
        """Answer what was handed in and has not entered the log."""
        self.queued_entries = self.queued_bytes = 0
        for _, _, done in _taken(self._submissions):
            done(error)

    # --- the loop -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Turn for what was submitted, for ever; the timer turns when a deadline passed.

        Raises DiskFailed or InvariantBroken: the node cannot go on.
        """
        self._timer.move(self, self._next_deadline())
        while True:
            if not self._woken:
                await self._wake.park()
            self._woken = False
            self.turn()
            if self._failure is not None:
                raise self._failure
            if self._woken:
                await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Turn no more, and wait for the running sync. Blocks that long."""
        self._closed = True
        self._syncs.close()

    def turn(self) -> None:
        """One turn, from whichever task has news; a failure is for the driver's own task to raise.

        News from peers and disk are turned at once: waking the driver for them would cost every
        append two more rounds of the loop. Submissions wait for the driver, so that all tasks
        that run before it share a turn.
        """
        if self._failure is not None or self._closed:
            return
        try:
            now = trio.current_time()
            self._take_inputs(now)
        except Exception as error:
            self._fail(error)
        else:
            self._act_and_sync(now)

    def _act_and_sync(self, now: float) -> None:
        """What follows a look at the inputs, with the sync that is due, if it is done here."""
        try:
            syncs = self._act(now)
            while self._counts_more(syncs, now):
                now = trio.current_time()
                if self._ended_syncs:
                    self._take_inputs(now)
                syncs = self._act(now)
            self._timer.move(self, self._next_deadline())
        except Exception as error:
            self._fail(error)

    def alarm(self, now: float) -> None:
        """A deadline passed. A leader with nothing to say but heartbeats does so without a turn,
        if its last one was not long ago.
        """
        try:
            if self._closed or self._failure is not None:
                return
            flush_at = self._syncs.next_deadline
            quiet = now < self._turn_wanted_at and now < flush_at
            if quiet and (beat := beat_again(self._replica, now)) is not None:
                for peer in self._replica.dispatchers:
                    if (link := self._links.link_to(peer)) is not None:
                        link.send(beat)
                self._timer.move(self, min(self._replica.heartbeat_at, flush_at))
                return
            if (deadline := self._next_deadline()) > now:
                self._timer.move(self, deadline)
                return
        except Exception as error:
            self._fail(error)
        self._turn_wanted_at = now + self._replica.config.election_timeout_s
        self.turn()

    def _take_inputs(self, now: float) -> None:
        replica = self._replica
        if self._link_changes:
            for peer, connected in _taken(self._link_changes):
                (replica.reachable if connected else replica.unreachable)(peer, now)
        if self._inbox:
            for sender, messages in _taken(self._inbox):
                for message in messages:
                    replica.receive(sender, message, now)
        if self._gone:
            for leader, term in _taken(self._gone):
                replica.leader_gone(leader, term, now)
        if self._ended_syncs:
            for work, error in _taken(self._ended_syncs):
                if error is not None:
                    raise error
                self._syncs.ended(work)
                replica.persisted(work.index, work.epoch, work.hard_state, now)
        if self._reads:
            for ticket in _taken(self._reads):
                replica.request_read(ticket)
        self._transfer.turn(replica, sync_runs=self._syncs.busy)
        replica.tick(now)

    def _act(self, now: float) -> bool:
        """Do and say what follows from what is known now; whether a sync is due here then."""
        self._carry_out_writes()
        self._propose()
        messages = self._replica.take_messages(now)
        self._send(messages)  # before our own sync: the others' syncs are what an append waits for
        if peers := self._replica.dispatchers:
            self._batches.sent(min([peer.next_index for peer in peers.values()]))
        syncs = self._syncs.is_due(now)
        if syncs and not self._syncs.here:
            self._syncs.start(now)
            syncs = False
        self._fail_lost_appends()
        # The leader waits for a follower's sync, and nobody for what it applies: that comes after.
        self._after_turn(messages, not syncs or self._replica.acks is not None)
        return syncs

    def _fail(self, error: Exception) -> None:
        """The node cannot go on; its own task says so."""
        self._failure = error
        self.wake()

    # --- the store ----------------------------------------------------------------------------

    def _carry_out_writes(self) -> None:
        writes, hard_state = self._replica.take_writes()
        for write in writes:
            self._writer.carry_out(write)
        if hard_state is not None:
            self._syncs.hard_state_due = hard_state
        if (standing := self._replica.admission.standing) is not self._store.standing:
            self._store.set_standing(standing)

    def _propose(self) -> None:
        if not self._submissions:
            return
        submissions = self._submissions[:]
        bodies = list(chain.from_iterable([bodies for bodies, _, _ in submissions]))
        try:
            first, term = self._replica.propose(len(bodies))
        except Rejected as error:
            self.reject_submissions(error)
            return
        self._submissions.clear()
        self._last_proposed = len(bodies)
        self.queued_entries = self.queued_bytes = 0
        self._writer.append(term, Magic.NORMAL, bodies, first)
        add = self._pending.add
        for batch, body_bytes, done in submissions:
            last = first + len(batch) - 1
            add(first, last, term, body_bytes, done)
            first = last + 1

    def _next_deadline(self) -> float:
        return min(self._replica.next_deadline(), self._syncs.next_deadline)

    def _counts_more(self, syncs: bool, now: float) -> bool:
        """Have more of the log count, if it may by now: that is news to act on.

        `syncs`: whether a sync is due here.
        """
        if (written := self._syncs.written_that_counts(now)) is not None:
            self._replica.persisted(*written, None, now)
            return True
        if not syncs:
            return False
        work, error = self._syncs.run(now)
        if error is None and work.hard_state is None:
            self._syncs.ended(work)
            replica = self._replica
            quiet = persisted_again(replica, work.index, work.epoch, trio.current_time())
            # A follower has put off what comes after a turn until it has answered.
            return not quiet or replica.acks is None
        self._ended_syncs.append((work, error))
        return True

    # --- the others ---------------------------------------------------------------------------

    def _send(self, messages: Messages) -> None:
        for peer, message in messages.outgoing:
            link = self._links.link_to(peer)
            if link is None:
                continue
            if isinstance(message, PushRequest) and message.phase is Phase.APPEND:
                payload = self._batches.payload(message.prev_index + 1, message.last_index)
                link.send(message, payload)
            elif isinstance(message, InstallSnapshot):
                self._transfer.send(link, peer, message)
            else:
                link.send(message)

    def _fail_lost_appends(self) -> None:
        state = self._replica.state
        leading = state.term if self._replica.acks is not None else None
        if leading != self._led_term:
            self._led_term = leading
            self._pending.end_leadership(state.committed, self._replica.view.term_at, state.leader)


def _taken(items: list[T]) -> Sequence[T]:
    """The items so far; the list is empty afterwards."""
    taken = items[:]
    items.clear()
    return taken
