"""The process of one simulated member: the real core over the real store, a turn at a time.

A turn follows the order that `dledger.core.replica` demands of every driver. What the runtime adds
around it (tasks, sockets, threads) is not here; what it decides (how pushes are cut and checked,
whose append is answered how) is the runtime's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dledger.core.entry_handler import (
    Accepted,
    ConfigurationEntry,
    NoopEntry,
    Restart,
    Truncation,
    Write,
)
from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.membership.change_errors import ChangeRefused
from dledger.core.membership.configuration_change import Change, Transition
from dledger.core.messages import InstallSnapshot, Message, Phase, PushRequest, PushResponse
from dledger.core.replica import Messages, Outgoing, Replica
from dledger.entry import Body, Magic
from dledger.errors import Discarded, InvariantBroken, LeaderKept, Rejected
from dledger.node.batches import Batches
from dledger.node.log_writer import LogWriter
from dledger.sessions.session_clock import SessionClock
from dledger.store.log_store import SyncWork
from dledger.store.push_check import PushCheck
from dledger.store.segment_store import SegmentStore
from dledger.store.snapshot_folder import Snapshot
from dledger.waits.pending_appends import Done, Outcome, PendingAppends
from jepsen_like.simulation.candidacies import Candidacies
from jepsen_like.simulation.clients import History
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.end_signs import EndSigns
from jepsen_like.simulation.event_loop import EventLoop
from jepsen_like.simulation.invariants import Invariants, InvariantViolated
from jepsen_like.simulation.role_counts import RoleCounts
from jepsen_like.simulation.snapshots import MemberSnapshots
from jepsen_like.simulation.swarm import Swarm
from jepsen_like.simulation.trace import Trace
from jepsen_like.simulation.virtual_network import VirtualNetwork
from jepsen_like.simulation.witness import check_reads_end
from jepsen_like.simulation.written_log import log_changes


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all nodes of a run share."""

    swarm: Swarm
    loop: EventLoop
    network: VirtualNetwork
    invariants: Invariants
    history: History
    coverage: Coverage
    trace: Trace | None
    signs: EndSigns
    candidacies: Candidacies


class SessionCall(NamedTuple):
    """What a client with a session asks: bodies for the leader's time, and who wants to know."""

    bodies: Callable[[int], list[bytes]]
    done: Done


class ChangeCall(NamedTuple):
    """What an operator asks: changes of the group, or (none) the end of a joint phase."""

    changes: Sequence[Change]
    transition: Transition
    expected: int | None


@dataclass(slots=True)
class Arrivals:
    """What came in since the last turn."""

    messages: list[tuple[str, Message]]
    link_changes: list[tuple[str, bool]]
    gone: list[tuple[str, int]]
    ended_syncs: list[SyncWork]
    reads: list[int]
    appends: list[tuple[list[int], list[Body]]]
    session_calls: list[SessionCall]
    transfers: list[str | None]
    changes: list[ChangeCall]
    forgets: int = 0

    @staticmethod
    def none() -> Arrivals:
        """Nothing came in."""
        return Arrivals([], [], [], [], [], [], [], [], [])


class NodeProcess:
    """Everything that a crash takes away."""

    def __init__(
        self,
        name: str,
        store: SegmentStore,
        replica: Replica,
        batches: Batches,
        around: Surroundings,
        snapshots: MemberSnapshots,
    ) -> None:
        self.name = name
        self.store = store
        self.replica = replica
        self.snapshots = snapshots
        self.machine = snapshots.machine
        self._session_clock = SessionClock()
        self.work: SyncWork | None = None  # the sync that runs
        self._batches = batches
        self._writer = LogWriter(store, batches)
        self._check = PushCheck(store)
        self._pending = PendingAppends()
        self._around = around
        self._led_term: int | None = None
        self._hard_state_due: HardState | None = None
        self._synced = (store.last_index, store.epoch)
        self._sync_limit = -1  # what the running sync covers and no truncation has taken since
        self._open_reads: dict[int, float] = {}  # when each began, by this node's clock
        self._ready_reads: list[tuple[int, int]] = []
        self._roles = RoleCounts(replica, around.coverage)

    # --- one turn -------------------------------------------------------------------------------

    def turn(self, arrivals: Arrivals, now: float) -> list[Outgoing]:
        """Take what arrived; what leaves. Then `work` may be a sync that has to be run."""
        replica = self.replica
        for peer, connected in arrivals.link_changes:
            (replica.reachable if connected else replica.unreachable)(peer, now)
        for sender, message in arrivals.messages:
            self._receive(sender, message, now)
        for peer, term in arrivals.gone:
            believed = replica.leader_gone(peer, term, now)
            self._around.coverage.count("leaders taken for gone", believed)
        for work in arrivals.ended_syncs:
            self.work = None
            self._synced = (work.index, work.epoch)
            replica.persisted(work.index, work.epoch, work.hard_state, now)
        for ticket in arrivals.reads:
            self._open_reads[ticket] = now
            replica.request_read(ticket)
        for target in arrivals.transfers:
            self._transfer(target, now)
        for _ in range(arrivals.forgets):
            self._forget_leader()
        for change in arrivals.changes:
            self._change(change)
        snapshots, invariants = self.snapshots, self._around.invariants
        snapshots.take_pieces(replica)
        runs = self.work is not None
        snapshots.tell(replica, invariants, self._log_replaced, sync_runs=runs)
        replica.tick(now)
        self._carry_out_writes()
        snapshots.restore_if_due(replica, invariants)
        self._apply()
        snapshots.write_if_due(replica, now)
        for numbers, bodies in arrivals.appends:
            self._propose(numbers, bodies)
        for call in arrivals.session_calls:
            self._propose_in_session(call, now)
        self._begin_sync()
        messages = replica.take_messages(now)
        self._take_read_outcomes(messages)
        self._note_decided(messages)
        check_reads_end(self.name, self._open_reads.values(), now, replica.config.read_wait_s)
        outgoing = self._filled_all(messages)
        snapshots.remove_discarded()
        self._fail_lost_appends()
        self._roles.note()
        return outgoing

    def _receive(self, sender: str, message: Message, now: float) -> None:
        if isinstance(message, PushRequest):
            message = self._check.check(message)
        elif isinstance(message, PushResponse) and not message.ok:
            conflict = message.verified >= message.index
            self._around.coverage.count("conflicts" if conflict else "refused probes")
        self.replica.receive(sender, message, now)

    def _filled_all(self, messages: Messages) -> list[Outgoing]:
        found = []
        for peer, message in messages.outgoing:
            if (filled := self._filled(message)) is not None:
                found.append(Outgoing(peer, filled))
        return found

    def _filled(self, message: Message) -> Message | None:
        if isinstance(message, InstallSnapshot):
            return self.snapshots.filled(message)
        if isinstance(message, PushRequest) and message.phase is Phase.APPEND:
            payload = self._batches.payload(message.prev_index + 1, message.last_index)
            return message._replace(payload=payload)
        return message

    def ended(self) -> None:
        """The process is gone: nobody will answer its clients."""
        for ticket in self._open_reads:
            self._around.history.end_read(ticket, None)

    # --- the store ------------------------------------------------------------------------------

    def _carry_out_writes(self) -> None:
        writes, hard_state = self.replica.take_writes()
        for write in writes:
            self._carry_out(write)
        if hard_state is not None:
            self._hard_state_due = hard_state
        if (standing := self.replica.admission.standing) is not self.store.standing:
            self.store.set_standing(standing)

    def _carry_out(self, write: Write) -> None:
        invariants = self._around.invariants
        if isinstance(write, NoopEntry):
            self._append(write.term, Magic.NOOP, [b""], write.index)
            return
        if isinstance(write, ConfigurationEntry):
            self._append(write.term, Magic.CONFIGURATION, [write.body], write.index)
            return
        if isinstance(write, Restart):
            # A sync that runs saw the old log: none does, or the store refuses.
            self._sync_limit = write.begin.before_index
        elif isinstance(write, Truncation):
            self._around.coverage.count("truncations")
            invariants.truncated(self.name, write.index)
            self._sync_limit = min(self._sync_limit, write.index)
        elif write.first > write.push.prev_index + 1:
            self._around.coverage.count("resent pushes cut")
        self._writer.carry_out(write)
        if isinstance(write, Restart):
            invariants.restarted(self.name)
        elif isinstance(write, Accepted):
            self._tell_written(write.first, self.store.last_index)

    def _tell_written(self, first: int, last: int) -> None:
        store = self.store
        chains = [(store.term_at(at), store.chain_at(at)) for at in range(first, last + 1)]
        changes = log_changes(store, first, last)
        self._around.invariants.written(self.name, first, chains, changes)

    def _append(self, term: int, magic: Magic, bodies: list[Body], first: int) -> None:
        invariants = self._around.invariants
        invariants.created(self.name, term, first)
        segment = self.store.end_pos // self._around.swarm.segment_bytes
        last = self._writer.append(term, magic, bodies, first)
        if self.store.end_pos // self._around.swarm.segment_bytes > segment:
            self._around.coverage.count("segment rolls")
        self._tell_written(first, last)

    def _begin_sync(self) -> None:
        store = self.store
        if self.work is not None:
            return
        written = (store.last_index, store.epoch)
        if written == self._synced and self._hard_state_due is None and not store.record_due:
            return
        store.note_committed(self.replica.appliable)
        hard_state, self._hard_state_due = self._hard_state_due, None
        self.work = store.begin_sync(hard_state)
        self._sync_limit = self.work.index

    def run_sync(self) -> SyncWork:
        """Carry out the sync that began. Raises DiskFailed or PowerCut."""
        work = self.work
        if work is None:
            raise InvariantBroken("no sync was begun")
        work.run()
        self._around.invariants.synced(self.name, self._sync_limit, work.hard_state)
        return work

    # --- the state machine ----------------------------------------------------------------------

    @property
    def has_to_apply(self) -> bool:
        """Whether there is more to apply than a turn takes."""
        replica = self.replica
        return replica.state.applied < replica.appliable and self.snapshots.awaited is None

    def _apply(self) -> None:
        replica, around = self.replica, self._around
        first = replica.state.applied + 1
        last = replica.appliable
        if around.loop.now < around.swarm.fault_seconds:
            last = min(last, first + around.swarm.apply_at_once - 1)
        if first > last or self.snapshots.awaited is not None:
            return
        entries = self._writer.cache.take(first, last)
        sums = self.machine.sums.apply(entries)
        answers = self.machine.apply(entries)
        around.history.applied(entries)
        around.history.sessions.applied(self.name, entries, answers)
        around.invariants.check_committed(self.name, replica.state.committed)
        around.invariants.applied(self.name, first, sums)
        replica.applied_to(entries[-1].index)
        self._pending.applied(entries, answers)

    def _log_replaced(self, snapshot: Snapshot) -> None:
        self._pending.never_applied(snapshot.header.index, self.replica.state.leader)

    # --- clients --------------------------------------------------------------------------------

    def _propose(self, numbers: list[int], bodies: list[Body]) -> None:
        around = self._around
        try:
            first, term = self.replica.propose(len(bodies))
        except Rejected:
            for number in numbers:
                around.history.refuse(number)
            return
        self._append(term, Magic.NORMAL, bodies, first)

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, list):
                around.coverage.count("acknowledged appends", len(numbers))
                for number, appended in zip(numbers, outcome, strict=True):
                    around.history.acknowledge(number, appended.index)
            elif isinstance(outcome, Discarded):
                around.coverage.count("discarded appends", len(numbers))
                for number in numbers:
                    around.history.refuse(number)
            else:
                around.coverage.count("unknown appends", len(numbers))

        self._pending.add(first, first + len(bodies) - 1, term, 0, done)

    def _propose_in_session(self, call: SessionCall, now: float) -> None:
        bodies: list[Body] = [*call.bodies(self._session_now_ms(now))]
        try:
            first, term = self.replica.propose(len(bodies))
        except Rejected as error:
            call.done(error)
            return
        self._append(term, Magic.NORMAL, bodies, first)
        self._pending.add(first, first + len(bodies) - 1, term, 0, call.done)

    def session_expiry_is_due(self, now: float) -> bool:
        """Whether a leader would end a session now."""
        due_ms = self.machine.sessions.machine.table.next_expiry_ms()
        return due_ms is not None and due_ms <= self._session_now_ms(now)

    def _session_now_ms(self, now: float) -> int:
        applied_ms = self.machine.sessions.machine.table.time_ms
        return self._session_clock.now_ms(now, self.replica.state.term, applied_ms)

    def _fail_lost_appends(self) -> None:
        """Answer the appends of a leadership that ended, as the runtime's driver does."""
        state, view = self.replica.state, self.replica.view
        leading = state.term if self.replica.acks is not None else None
        if leading == self._led_term:
            return
        self._led_term = leading

        self._pending.end_leadership(state.committed, view.term_at, state.leader)

    def _transfer(self, target: str | None, now: float) -> None:
        """An operator asks to hand leadership over."""
        try:
            if self.replica.transfer_leadership(target, now) is not None:
                self._around.coverage.count("transfers")
        except Rejected:
            self._around.coverage.count("refused transfers")

    def _change(self, call: ChangeCall) -> None:
        """An operator asks to change the group."""
        try:
            if call.changes:
                self.replica.propose_change(call.changes, call.transition, call.expected)
            else:
                self.replica.propose_leave()
        except ChangeRefused:
            self._around.coverage.count("refused changes")
        except Rejected:
            self._around.coverage.count("changes asked of others than the leader")
        else:
            self._around.coverage.count("proposed changes")

    def _note_decided(self, messages: Messages) -> None:
        """Count what members did; a change that is void is one that no leader should have made."""
        for index, refusal in messages.changes:
            if refusal is not None:
                raise InvariantViolated(
                    "changes follow one another", f"{self.name}: the change {index}: {refusal}"
                )
        membership = self.replica.state.membership
        if messages.changes and self.replica.state.role is Role.LEADER:
            coverage = self._around.coverage
            coverage.count("changes in force", len(messages.changes))
            coverage.count("joint phases", membership.configuration.is_joint)

    def _forget_leader(self) -> None:
        try:
            self.replica.forget_leader()
        except LeaderKept:
            self._around.coverage.count("leaders kept")
        else:
            self._around.coverage.count("leaders forgotten")

    def _take_read_outcomes(self, messages: Messages) -> None:
        coverage = self._around.coverage
        for ticket in messages.reads_lost:
            if ticket in self._open_reads:
                coverage.count("reads given up")
                self._end_read(ticket, None)
        for ticket, index, by_lease in messages.reads_ready:
            if ticket in self._open_reads:
                coverage.count("lease reads", by_lease)
                coverage.count("follower reads", self.replica.reads is None)
                self._ready_reads.append((ticket, index))
        self._ready_reads = [read for read in self._ready_reads if read[0] in self._open_reads]
        applied = self.replica.state.applied
        waiting = []
        for ticket, index in self._ready_reads:
            if index <= applied:
                self._around.coverage.count("reads")
                self._end_read(ticket, index)
            else:
                waiting.append((ticket, index))
        self._ready_reads = waiting

    def _end_read(self, ticket: int, index: int | None) -> None:
        del self._open_reads[ticket]
        self._around.history.end_read(ticket, index)
