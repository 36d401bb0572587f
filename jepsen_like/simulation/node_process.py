"""The process of one simulated member: everything that a crash destroys.

The member is the product's own: the turn, the sync schedule, the applier,
snapshots, housekeeping. Events stand for the tasks, sockets and threads of the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dledger.core.member_state import Role
from dledger.core.membership.change_errors import ChangeRefused, GrowthNotNoted
from dledger.core.membership.configuration_change import Change, Transition, change
from dledger.core.messages import InstallSnapshot, Message, PushRequest, PushResponse
from dledger.core.replica import Outcomes
from dledger.entry import Body
from dledger.errors import Discarded, LeaderKept, PeerFault, Rejected
from dledger.node.member import MakeReplica, Member, MemberSettings, Runtime
from dledger.node.tally import Tally
from dledger.node_end import NodeEnd
from dledger.sessions.session_clock import SessionClock
from dledger.snapshots.restoring import Opened
from dledger.store.push_check import PushCheck
from dledger.waits.pending_appends import Done, Outcome
from dledger.waits.pending_reads import ReadOutcome
from jepsen_like.simulation.candidacies import Candidacies
from jepsen_like.simulation.clients import History
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.end_signs import EndSigns
from jepsen_like.simulation.event_loop import EventLoop
from jepsen_like.simulation.invariants import Invariants, InvariantViolated
from jepsen_like.simulation.machine import MachineState
from jepsen_like.simulation.process_counts import ProcessCounts
from jepsen_like.simulation.swarm import Swarm
from jepsen_like.simulation.trace import Trace
from jepsen_like.simulation.virtual_network import VirtualNetwork
from jepsen_like.simulation.virtual_syncs import VirtualSyncs
from jepsen_like.simulation.watched_log import WatchedLog
from jepsen_like.simulation.watched_machine import MemberMachine
from jepsen_like.simulation.witness import check_reads_end

if TYPE_CHECKING:
    from jepsen_like.simulation.virtual_node import VirtualNode


@dataclass(frozen=True, slots=True)
class Surroundings:
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
    """A request of a client with a session: its bodies at the leader's time, and its callback."""

    bodies: Callable[[int], list[bytes]]
    done: Done


class ChangeCall(NamedTuple):
    """A request of an operator: changes of the group, or (none) the end of a joint phase."""

    changes: Sequence[Change]
    transition: Transition
    expected: int | None


@dataclass(slots=True)
class Arrivals:
    messages: list[tuple[str, Message]] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    appends: list[tuple[list[int], list[Body]]] = field(default_factory=list)
    session_calls: list[SessionCall] = field(default_factory=list)
    transfers: list[str | None] = field(default_factory=list)
    changes: list[ChangeCall] = field(default_factory=list)
    forgets: int = 0
    calls: list[Callable[[], None]] = field(default_factory=list)


class NodeProcess:
    def __init__(
        self,
        name: str,
        settings: MemberSettings,
        opened: Opened,
        machine: MemberMachine,
        make_replica: MakeReplica,
        machinery: VirtualNode,
        around: Surroundings,
    ) -> None:
        swarm = around.swarm
        self.name = name
        self.store = store = opened.store
        self.syncs = VirtualSyncs(
            name,
            swarm.quick_syncs,
            settings.flush_interval_s is not None,
            machinery.begin_sync,
            around.invariants,
            around.coverage,
        )
        self._around = around
        self._watched = machine
        self.member = Member(
            settings,
            opened,
            machine,
            make_replica,
            Runtime(
                _Ways(name, self, around),
                self.syncs,
                machinery.beside,
                machinery.wake,
                machinery.wake_applier,
                machinery.wake_look,
                machinery.clock_reads,
                self._told,
                machine.moved,
                self._refused,
                Tally(),
                lambda log: WatchedLog(
                    name,
                    log,
                    store,
                    self.syncs,
                    swarm.segment_bytes,
                    self._awaited_index,
                    lambda: self.replica.state.committed,
                    around.invariants,
                    around.coverage,
                ),
            ),
        )
        self.replica = self.member.replica
        self._growth_note = opened.growth_note
        self._seen_configuration = -2  # no configuration has this index
        self._session_clock = SessionClock()
        self._checks: dict[str, PushCheck] = {}
        self._reads: dict[int, float] = {}  # clients' tickets; when each began, by its patience
        self._counts = ProcessCounts(self.member, opened, around.coverage)
        machine.begin(store, self.replica)

    @property
    def machine(self) -> MachineState:
        return self._watched.state

    def _awaited_index(self) -> int:
        awaited = self.member.snapshots.awaited.snapshot
        return awaited.header.index if awaited is not None else -1

    def _refused(self, fault: PeerFault) -> None:
        """Members of a simulation follow the protocol, so no message may be refused."""
        raise InvariantViolated("no member is refused", f"{self.name}: {fault}")

    # --- steps ----------------------------------------------------------------------------------

    def turn(self, arrivals: Arrivals, now: float) -> None:
        turn = self.member.turn
        for sender, message in arrivals.messages:
            turn.received(sender, [self._checked(sender, message)])
        for ticket in arrivals.reads:
            self._read(ticket, now)
        for numbers, bodies in arrivals.appends:
            self._append(numbers, bodies)
        for target in arrivals.transfers:
            self._transfer(target, now)
        for _ in range(arrivals.forgets):
            self._forget_leader()
        for change_call in arrivals.changes:
            self._change(change_call)
        for call_in in arrivals.calls:
            call_in()
        for call in arrivals.session_calls:
            asked: list[Body] = [*call.bodies(self._session_now_ms(now))]
            turn.submit(asked, 0, call.done)
        turn.turn(now)
        self._look_at_growth()
        waited, config = self.replica.patience.at(now), self.replica.config
        # Reads at the only first voter are timed from when it may begin its group.
        alone = config.began_with.voting_members == {self.name}
        wait_s = config.read_wait_s + (config.calls_wait_s if alone else 0.0)
        check_reads_end(self.name, self._reads.values(), waited, wait_s)

    def go_on_applying(self) -> None:
        self.member.snapshots.awaited.restore_if_due()
        self.member.applier.apply_some()

    def has_moved(self, now: float) -> None:
        self._watched.follow()
        self._counts.note(now)

    def _told(self, outcomes: Outcomes) -> None:
        """Check that no change is void."""
        for index, refusal in outcomes.changes:
            if refusal is not None:
                raise InvariantViolated(
                    "changes follow one another", f"{self.name}: the change {index}: {refusal}"
                )
        self._counts.told(outcomes)

    def _checked(self, sender: str, message: Message) -> Message:
        if isinstance(message, PushRequest):
            if sender not in self._checks:
                self._checks[sender] = PushCheck(self.store)
            return self._checks[sender].check(message)
        if isinstance(message, PushResponse) and not message.ok:
            conflict = message.verified >= message.index
            self._around.coverage.count("conflicts" if conflict else "refused probes")
        return message

    def killed(self) -> None:
        """End the open reads of a killed process: their clients get no answer."""
        for ticket in self._reads:
            self._around.history.end_read(ticket, None)
        self._reads.clear()

    def close(self) -> None:
        if self.syncs.busy:  # as a node does, it waits for the disk
            _, error = self.syncs.run_begun()
            if error is not None:
                raise error
        self.member.close(NodeEnd())
        self.member.snapshots.ended()
        self.store.close()
        # The record says that all of the log is durable.
        self._around.invariants.synced(self.name, self.store.last_index, None)

    # --- clients --------------------------------------------------------------------------------

    def _append(self, numbers: list[int], bodies: list[Body]) -> None:
        around = self._around
        if self.member.room.is_short:  # as AppendGate does
            around.coverage.count("appends refused for lack of room")
            for number in numbers:
                around.history.refuse(number)
            return

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, list):
                around.coverage.count("acknowledged appends", len(numbers))
                for number, appended in zip(numbers, outcome, strict=True):
                    around.history.acknowledge(number, appended.index)
            elif isinstance(outcome, Discarded | Rejected):
                around.coverage.count("discarded appends", isinstance(outcome, Discarded))
                for number in numbers:
                    around.history.refuse(number)
            else:
                around.coverage.count("unknown appends", len(numbers))

        self.member.turn.submit(bodies, 0, done)

    def _read(self, ticket: int, now: float) -> None:
        coverage, history = self._around.coverage, self._around.history

        def done(outcome: ReadOutcome) -> None:
            if self._reads.pop(ticket, None) is None:
                return
            index = outcome if isinstance(outcome, int) else None
            coverage.count("reads" if index is not None else "reads given up")
            applied = self.replica.state.applied
            if index is not None and index > applied:
                raise InvariantViolated(
                    "reads wait for what they must see",
                    f"{self.name} serves a read of {index}, {applied} is applied",
                )
            history.end_read(ticket, index)

        self._reads[ticket] = self.replica.patience.at(now)
        self.member.reads.begin(done)

    def session_expiry_is_due(self, now: float) -> bool:
        """Return whether a leader would end a session now."""
        due_ms = self.machine.sessions.machine.table.next_expiry_ms()
        return due_ms is not None and due_ms <= self._session_now_ms(now)

    def _session_now_ms(self, now: float) -> int:
        applied_ms = self.machine.sessions.machine.table.time_ms
        return self._session_clock.now_ms(now, self.replica.state.term, applied_ms)

    # --- operators ------------------------------------------------------------------------------

    def _transfer(self, target: str | None, now: float) -> None:
        try:
            if self.replica.transfer_leadership(target, now) is not None:
                self._around.coverage.count("transfers")
        except Rejected:
            self._around.coverage.count("refused transfers")

    def _change(self, call: ChangeCall) -> None:
        try:
            if call.changes:
                self._note_growth(call)
                self.replica.propose_change(call.changes, call.transition, call.expected)
            else:
                self.replica.propose_leave()
        except ChangeRefused:
            self._around.coverage.count("refused changes")
        except Rejected:
            self._around.coverage.count("changes asked of others than the leader")
        else:
            self._around.coverage.count("proposed changes")

    def _note_growth(self, call: ChangeCall) -> None:
        """Write the growth note where a node does before its group grows. Raises Rejected."""
        replica = self.replica
        replica.check_proposable()
        before = replica.state.membership.configuration
        after = change(before, call.changes, call.transition)
        if replica.needs_note(after) and not replica.growth_is_noted:
            self._write_growth_note()

    def _write_growth_note(self) -> None:
        assert self._growth_note is not None
        self._growth_note.write()
        self.replica.growth_is_noted = True
        self._around.coverage.count("groups noted as grown")

    def _look_at_growth(self) -> None:
        """Write the growth note where GrowthWatch does after a turn."""
        seen = self.replica.state.membership.index
        if seen == self._seen_configuration:
            return
        self._seen_configuration = seen
        if self.replica.has_grown and not self.replica.growth_is_noted:
            with suppress(GrowthNotNoted):
                self._write_growth_note()

    def _forget_leader(self) -> None:
        try:
            self.replica.forget_leader()
        except LeaderKept:
            self._around.coverage.count("leaders kept")
        else:
            self._around.coverage.count("leaders forgotten")

    @property
    def leads(self) -> bool:
        return self.replica.state.role is Role.LEADER


class _Ways:
    def __init__(self, name: str, process: NodeProcess, around: Surroundings) -> None:
        self._made = {
            peer: _Way(name, peer, process, around) for peer in around.invariants.witnesses
        }

    def link_to(self, peer: str) -> _Way | None:
        return self._made[peer]


class _Way:
    """The way to one peer. Checks every message that is sent on it."""

    def __init__(self, name: str, peer: str, process: NodeProcess, around: Surroundings) -> None:
        self._name = name
        self._peer = peer
        self._process = process
        self._around = around

    def send(self, message: Message, payload: bytes = b"") -> None:
        around, name, peer = self._around, self._name, self._peer
        if isinstance(message, PushRequest) and payload:
            message = message._replace(payload=payload)
        elif isinstance(message, InstallSnapshot) and message.length:
            around.coverage.count("pieces of snapshots sent")
        around.invariants.released(name, peer, message)
        around.candidacies.released(name, peer, message, self._process.replica)
        around.network.send(name, peer, message)
