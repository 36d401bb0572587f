"""A simulated group that runs a user's state machine, for tests to steer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from dledger.core.member_state import Role
from dledger.errors import DLedgerError
from dledger.renamed import renamed_arguments
from dledger.waits.pending_appends import Appended
from jepsen_like.checkers.report import Verdict
from jepsen_like.simulation.clients import History
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.event_loop import EventLoop
from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.group import simulated_group
from jepsen_like.simulation.invariants import Invariants
from jepsen_like.simulation.service.adaptive_clients import AdaptiveClients
from jepsen_like.simulation.service.clients import ServiceClients
from jepsen_like.simulation.service.drawn_schedule import (
    LARGEST_BODY_BYTES,
    faults_of,
    has_snapshots,
    service_swarm,
)
from jepsen_like.simulation.service.journal import Journal
from jepsen_like.simulation.service.request import Request, Told, Unanswered
from jepsen_like.simulation.service.schedule import LEADER, Do, Step
from jepsen_like.simulation.service.service import Service, Simulated, service_of
from jepsen_like.simulation.service.service_application import ServiceApplication
from jepsen_like.simulation.service.service_book import NEVER_RAISES, ServiceBook, check_end
from jepsen_like.simulation.service.simulated_member import SimulatedMember
from jepsen_like.simulation.simulation import (
    LOOK_EVERY,
    MOST_CATCH_UP_S,
    MOST_TIMEOUTS_TO_ELECT,
)
from jepsen_like.simulation.trace import Trace
from jepsen_like.simulation.virtual_node import VirtualNode
from jepsen_like.simulation.witness import InvariantViolated, broken_promise
from jepsen_like.users_code import raised_in

# How long a call of a test waits for its answer, in virtual seconds.
WAIT_S = 60.0
# A client that was refused tries again after so long, in virtual seconds.
RETRY_S = 0.05


T = TypeVar("T")


class World:
    """A group in virtual time, its clients, and the means to break it. See `simulate`.

    Times are virtual seconds. A member is named by its name ("n0"), by `"leader"`, or by the
    object that `members` has. Every call that lets time pass raises Failure when a promise is
    broken; after that the world has ended.

    Attributes:
        service: what is simulated.
        seed: of the run.
    """

    @renamed_arguments(seconds="faults_s")
    def __init__(
        self,
        service: Service,
        nodes: int,
        seed: int,
        *,
        records: bool = True,
        trace: Trace | None = None,
        faults_s: float = 0.0,
        largest_body_bytes: int = LARGEST_BODY_BYTES,
    ) -> None:
        self.service = service
        self.seed = seed
        swarm = service_swarm(
            seed,
            nodes,
            faults_s,
            snapshots=has_snapshots(service),
            largest_body_bytes=largest_body_bytes,
        )
        self._swarm = swarm
        group = simulated_group(swarm, trace, self._application)
        self._nodes = {node.name: node for node in group.nodes}
        self._around = group.around
        self._loop = group.around.loop
        self._journal: Journal | None = None
        if records:
            witnesses = group.around.invariants.witnesses
            self._journal = Journal(self._loop, group.nodes, witnesses)
            group.around.network.watch = self._journal
        self._clients = ServiceClients(service, self._loop, self._runs.machine_of, self._journal)
        self._runs.clients = self._clients
        self._adaptive = AdaptiveClients(service, seed)
        self._members = [SimulatedMember(node, self._runs.machine_of) for node in group.nodes]
        self._failure: Failure | None = None
        self._is_over = False

    def _application(
        self,
        history: History,
        invariants: Invariants,
        coverage: Coverage,
        loop: EventLoop,
    ) -> ServiceApplication:
        del coverage, loop
        self._runs = ServiceApplication(self.service, history, invariants)
        return self._runs

    def __enter__(self) -> Self:
        """Start all members."""
        self._guarded(self._start)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """Without an error: put everything right, and check the end. See `finish`."""
        if error is None:
            self.finish()

    def _start(self) -> None:
        self._runs.book.begin()
        for node in self._nodes.values():
            node.start()
        self._after_step()

    # --- what is there --------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The virtual seconds since the world began."""
        return self._loop.now

    @property
    def members(self) -> Sequence[SimulatedMember]:
        """All members, those that are down among them."""
        return self._members

    @property
    def machines(self) -> dict[str, Any]:
        """The state machines of the members that are up, by name."""
        return {each.name: each.machine for each in self._members if each.machine is not None}

    @property
    def leader(self) -> SimulatedMember | None:
        """The leader of the highest term; None if no member leads."""
        leaders = [each for each in self._members if each.leads]
        return max(leaders, key=lambda each: (not each.is_frozen, each.term), default=None)

    @property
    def requests(self) -> Sequence[Request]:
        """All requests of clients so far, in the order in which they began."""
        return self._clients.requests

    @property
    def journal(self) -> Journal | None:
        """The events of the run; None unless they are noted."""
        return self._journal

    @property
    def digest(self) -> str:
        """A sum of all events: equal runs have equal sums, in any process.

        Empty unless events are noted.
        """
        return self._journal.digest if self._journal is not None else ""

    @property
    def coverage(self) -> Coverage:
        """Counts of what was reached."""
        return self._around.coverage

    @property
    def events(self) -> int:
        """How many events the run had: messages, turns, syncs and so on."""
        return self._loop.count

    def machine(self, member: str | SimulatedMember = LEADER) -> Any:
        """The state machine of a member as it is now. Raises ValueError if the member is down.

        It is what the member has applied so far, which may be old: use `read` for the latest.
        """
        node = self._node(member)
        machine = None if node is None else self._runs.machine_of(node.name)
        if machine is None:
            raise ValueError(f"{member} is down, or no member leads")
        return machine

    # --- clients --------------------------------------------------------------------------------

    def submit(self, body: bytes, member: str | SimulatedMember = LEADER) -> Request:
        """Ask a member to append, once, and let no time pass. Look at the request later."""
        self._check_alive()
        return self._clients.append(self._node(member), body)

    def append(
        self, body: bytes, member: str | SimulatedMember = LEADER, within_s: float = WAIT_S
    ) -> Appended:
        """Append; let time pass until a member has applied it, and return its answer.

        A client asks again when it was refused for sure, as when no member leads.

        Raises:
            dledger.OutcomeUnknown: the leader was lost; the entry may be in the log.
            dledger.Rejected: it was refused until the time was over; the entry is not in the log.
            Failure: a promise was broken.
        """
        until_s = self.now + within_s
        while True:
            self._wait_for_leader(member, until_s)
            request = self.submit(body, member)
            self._wait(request, until_s)
            if request.appended is not None:
                return request.appended
            if request.told is not Told.NEVER or self.now >= until_s:
                raise request.error or Unanswered(f"no answer within {within_s:g} virtual seconds")
            self._pass_time(min(until_s, self.now + RETRY_S))

    def read(self, member: str | SimulatedMember = LEADER, within_s: float = WAIT_S) -> Any:
        """Read the latest state on a member: what `Service.query` returns, or the machine itself.

        Time passes until the member has confirmed that its state has every entry acknowledged
        before the call.

        Raises:
            dledger.Rejected: no member could confirm it in the time.
            Failure: a promise was broken.
        """
        until_s = self.now + within_s
        while True:
            self._wait_for_leader(member, until_s)
            request = self._clients.read(self._node(member), locally=False)
            self._wait(request, until_s)
            if request.told is Told.DONE:
                return request.answer
            if request.is_open or self.now >= until_s:
                raise request.error or Unanswered(f"no answer within {within_s:g} virtual seconds")
            self._pass_time(min(until_s, self.now + RETRY_S))

    # --- faults ---------------------------------------------------------------------------------

    def kill(self, member: str | SimulatedMember = LEADER, *, power: bool = False) -> None:
        """Kill the process of a member; with `power`, the machine loses what was not synced.

        Does nothing if it is down.
        """
        self._break_now(member, Do.CUT_POWER if power else Do.KILL)

    def close(self, member: str | SimulatedMember = LEADER) -> None:
        """Close a member in order. Does nothing if it is down or frozen."""
        self._break_now(member, Do.CLOSE)

    def restart(self, member: str | SimulatedMember) -> None:
        """Start a member that is down. Does nothing if it is up."""
        node = self._node(member)
        if node is not None and not node.is_up:
            self._guarded(node.start)

    def freeze(self, member: str | SimulatedMember = LEADER) -> None:
        """Have the process of a member stand still. Does nothing if it is down."""
        self._break_now(member, Do.FREEZE)

    def thaw(self, member: str | SimulatedMember) -> None:
        """Let a frozen member go on. Does nothing if it is not frozen."""
        node = self._node(member)
        if node is not None and node.is_up and node.is_paused:
            self._guarded(node.resume)

    def partition(self, *side: str | SimulatedMember, one_way: bool = False) -> None:
        """Cut these members off from the others, until `heal`.

        With `one_way` only messages from them are lost, and they still hear the others.
        """
        named = [self._node(each) for each in side]
        inside = {node.name for node in named if node is not None}
        self._guarded(lambda: self._cut(inside, one_way=one_way))

    def _cut(self, inside: set[str], *, one_way: bool) -> None:
        network = self._around.network
        self._note(f"{'mute' if one_way else 'cut off'} {' '.join(sorted(inside))}")
        for name in sorted(inside):
            for other in self._nodes:
                if other not in inside:
                    network.cut(name, other)
                    if not one_way:
                        network.cut(other, name)

    def heal(self) -> None:
        """Let all members reach one another again."""
        self._note("all links healed")
        self._guarded(self._around.network.heal)

    def fail_sync(self, member: str | SimulatedMember = LEADER) -> None:
        """Have the next sync of a member's disk fail, which ends its process."""
        self._break_now(member, Do.FAIL_SYNC)

    def transfer_leadership(self, member: str | SimulatedMember = LEADER) -> None:
        """Ask a member to give up leadership to another one. Does nothing if it is down."""
        self._break_now(member, Do.TRANSFER)

    def _break_now(self, member: str | SimulatedMember, do: str) -> None:
        node = self._node(member)
        if node is not None:
            self._guarded(lambda: self._break(node, do))

    def plan(self, steps: Sequence[Step]) -> None:
        """Have these steps happen at their times, while time passes."""
        for step in steps:
            self._loop.at(step.at_s, self._take, step)

    def _take(self, step: Step) -> None:
        node = self._node(step.member.split()[0])
        if step.call is not None and self._clients.waits(step.client):
            return  # the client awaits each call
        if step.is_fault:
            self.coverage.count(f"faults: {step.do}")
            self._note(f"{step.do} {step.member if node is None else node.name}")
        match step.do:
            case Do.APPEND:
                self._clients.append(node, step.entry, step.call, step.client)
            case Do.READ:
                locally = self.service.reads_locally
                self._clients.read(node, locally=locally, call=step.call, client=step.client)
            case Do.TURN:
                self._take_turn(step)
            case Do.CUT_OFF | Do.MUTE:
                names = {name for name in step.member.split() if name != LEADER}
                names |= {node.name} if node is not None else set()
                if names:
                    self._cut(names, one_way=step.do == Do.MUTE)
                    self._loop.at(step.ends_s, self._around.network.heal)
            case _:
                if node is not None:
                    self._break(node, step.do)
                    if step.do != Do.TRANSFER:
                        was_frozen = step.do == Do.FREEZE
                        self._loop.at(step.ends_s, self._end_fault, node, was_frozen)

    def _take_turn(self, step: Step) -> None:
        found = self._adaptive.next_call(step.client)
        if found is None:
            return
        call, client = found
        if call.is_read:
            locally, node = self.service.reads_locally, self._node(step.member)
            request = self._clients.read(node, locally=locally, call=call, client=client)
        else:
            request = self._clients.append(self._node(LEADER), call.entry, call, client)
        self._adaptive.made(step.client, request)

    @staticmethod
    def _break(node: VirtualNode, do: str) -> None:
        match do:
            case Do.KILL | Do.CUT_POWER if node.is_up:
                node.crash(power=do == Do.CUT_POWER)
            case Do.CLOSE if node.is_up and not node.is_paused:
                node.close()
            case Do.FREEZE if node.is_up and not node.is_paused:
                node.pause()
            case Do.FAIL_SYNC:
                node.disk.sync_fails = True
            case Do.TRANSFER if node.is_up:
                node.transfer_leadership(None)
            case _:
                pass  # it is down, or frozen

    def _end_fault(self, node: VirtualNode, was_frozen: bool) -> None:
        if self._is_over:
            return
        if was_frozen and node.is_up and node.is_paused:
            node.resume()
        elif not was_frozen and not node.is_up:
            node.disk.spare()
            node.start()

    # --- time -----------------------------------------------------------------------------------

    @renamed_arguments(seconds="for_s")
    def run_for(self, for_s: float) -> None:
        """Let virtual time pass. Raises Failure."""
        self._pass_time(self.now + for_s)

    def run_until(self, condition: Callable[[], bool], within_s: float = WAIT_S) -> bool:
        """Let time pass until the condition is true; return whether it is. Raises Failure."""
        return self._pass_time(self.now + within_s, condition)

    def _wait_for_leader(self, member: str | SimulatedMember, until_s: float) -> None:
        self._check_alive()
        if member == LEADER:
            self._pass_time(until_s, lambda: self.leader is not None)

    def _wait(self, request: Request, until_s: float) -> None:
        self._pass_time(until_s, lambda: not request.is_open)

    def _pass_time(self, end_s: float, until: Callable[[], bool] | None = None) -> bool:
        def run() -> bool:
            if until is not None and until():
                return True
            loop = self._loop
            while loop.step(end_s):
                self._after_step()
                if until is not None and until():
                    return True
            return False

        return self._guarded(run)

    def _after_step(self) -> None:
        """Check the results of a step."""
        runs = self._runs
        if self._journal is not None:
            self._journal.look()
        if runs.broken is not None:
            raise runs.broken
        if runs.has_changed and not runs.is_restoring:
            runs.has_changed = False
            self._check_invariant()

    def _check_invariant(self) -> None:
        if self.service.invariant is None:
            return
        try:
            self.service.invariant(self)
        except (Failure, InvariantViolated):
            raise
        except (Exception, SystemExit) as error:
            name = getattr(self.service.invariant, "__name__", "invariant")
            raise InvariantViolated(f"the invariant {name} holds", raised_in(error)) from error

    # --- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """Put everything right, wait until all members agree, and check the end. Raises Failure.

        Checked are: progress, equal states, a replay of the whole log, snapshots from several
        places of the log with the rest applied, the answers that clients got, the model, and the
        invariant. Does nothing when called again.
        """
        if not self._is_over:
            try:
                self._guarded(self._finish)
            finally:
                self._count()

    def _finish(self) -> None:
        self._put_right()
        self._wait_for_agreement()
        self._is_over = True
        for call in self.service.final():
            for node in self._nodes.values():
                self._clients.read(node, locally=True, call=call)
        check_end(self._runs.book)
        self._clients.check_answers(self._runs.book)
        if self.service.checked and self._clients.check_history() is Verdict.UNKNOWN:
            self.coverage.count("histories that nothing is known of")
        self._check_invariant()

    def _count(self) -> None:
        self.coverage.count("events", self._loop.count)
        self.coverage.count("messages", self._around.network.sent)
        for request in self.requests:
            self.coverage.count(f"{request.what}s {request.told}")

    def _put_right(self) -> None:
        self._note("everything is put right")
        self._around.network.calm()
        self._around.network.heal()
        for node in self._nodes.values():
            node.put_right()

    def _wait_for_agreement(self) -> None:
        timeout_s = self._swarm.election_timeout_s
        bound_s = timeout_s * MOST_TIMEOUTS_TO_ELECT + MOST_CATCH_UP_S
        give_up_s = self.now + bound_s
        while self.now < give_up_s:
            end_s = self.now + timeout_s * LOOK_EVERY
            while self._loop.step(end_s):
                self._after_step()
            for node in self._nodes.values():
                if not node.is_up:  # a sync that failed before may end it now
                    node.start()
            if self._agree() and not self._clients.open_requests:
                return
        raise InvariantViolated("progress after healing", f"no agreement within {bound_s:.1f} s")

    def _agree(self) -> bool:
        processes = [node.process for node in self._nodes.values()]
        states = [each.replica.state for each in processes if each is not None]
        ends = {each.store.last_index for each in processes if each is not None}
        return (
            len(states) == len(processes)
            and sum(state.role is Role.LEADER for state in states) == 1
            and len(ends) == 1
            and {state.applied for state in states} == ends
            and all(state.proven for state in states)
        )

    # --- inside ---------------------------------------------------------------------------------

    def _node(self, member: str | SimulatedMember) -> VirtualNode | None:
        name = member if isinstance(member, str) else member.name
        if name == LEADER:
            leader = self.leader
            return None if leader is None else self._nodes[leader.name]
        if name not in self._nodes:
            raise ValueError(f"there is no member {name!r}, only {', '.join(self._nodes)}")
        return self._nodes[name]

    def _note(self, what: str) -> None:
        if self._journal is not None:
            self._journal.note("note", "", what)
        if self._around.trace is not None:
            self._around.trace.note(self.now, "-", what)

    @property
    def failure(self) -> Failure | None:
        """The promise that was broken, if one was."""
        return self._failure

    @property
    def book(self) -> ServiceBook:
        """The entries of the run, and the states that they make."""
        return self._runs.book

    def check(self, do: Callable[[], None]) -> None:
        """Check something more. Raises Failure for an InvariantViolated."""
        self._guarded(do)

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _guarded(self, do: Callable[[], T]) -> T:
        """Do something; raise Failure if it breaks a promise."""
        self._check_alive()
        try:
            result = do()
            self._after_step()
        except (InvariantViolated, DLedgerError) as error:
            cause = error.__cause__
            is_users = cause and not isinstance(cause, DLedgerError | InvariantViolated)
            if isinstance(error, DLedgerError) and cause and is_users:
                raise self._fail(NEVER_RAISES, raised_in(cause)) from error
            raise self._fail(*broken_promise(error)) from error
        except SystemExit as error:  # a user's method may end the process
            raise self._fail(NEVER_RAISES, raised_in(error)) from error
        return result

    def _fail(self, promise: str, how: str) -> Failure:
        self._failure = Failure(self.seed, self.now, promise, how)
        if self._journal is not None:
            self._journal.note("note", "", f"broken: {promise}")
        return self._failure


def simulate(
    simulated: Simulated,
    *,
    nodes: int = 3,
    seed: int = 0,
    faults_s: float = 0.0,
    records: bool = True,
    largest_body_bytes: int = LARGEST_BODY_BYTES,
) -> World:
    """Return a group that runs a state machine, in this process and in virtual time.

        with jepsen_like.simulate(Counter, nodes=5, seed=7) as world:
            world.append(b"add 3")
            world.kill("leader")
            world.run_for(2.0)
            assert world.read().value == 3

    Core, store and the whole synchronous turn of the members are those that ship; time, network and
    disks are virtual. While time passes, the states and results of all members are compared, and
    the promises of the library itself are checked; `Service.invariant` is called after every step
    that changed a member. At the end of the block everything is put right, all members have to
    agree, and the end is checked: see `World.finish`.

    Args:
        simulated: the class of the state machine, or anything else that makes one; or a Service,
            which says more about it.
        nodes: how many members.
        seed: decides on the speed of network and disks, on election timeouts, on the order of what
            happens at once.
        faults_s: so many virtual seconds long, the faults of the seed happen by themselves.
        records: whether to note events, for `World.digest` and for pictures. Takes a third
            of the speed.
        largest_body_bytes: the length of the longest body that will be appended. Logs have
            segments of about this size, so the smaller, the sooner they are cut.
    """
    service = service_of(simulated)
    world = World(
        service,
        nodes,
        seed,
        records=records,
        faults_s=faults_s,
        largest_body_bytes=largest_body_bytes,
    )
    if faults_s > 0:
        world.plan(faults_of(seed, nodes, faults_s))
    return world
