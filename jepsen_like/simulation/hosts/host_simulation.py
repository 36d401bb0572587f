"""One run of whole hosts: from a seed to a verdict."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator

import trio

from dledger.errors import DLedgerError
from dledger.status import Status
from jepsen_like.chance import Chance
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.hosts.around import Around
from jepsen_like.simulation.hosts.breakage import Breakage
from jepsen_like.simulation.hosts.group_book import Broken, GroupBook
from jepsen_like.simulation.hosts.journal import Journal
from jepsen_like.simulation.hosts.last_wake_up import LastWakeUp
from jepsen_like.simulation.hosts.leaping_loop import LeapingClock, run_in_virtual_time
from jepsen_like.simulation.hosts.looking import until
from jepsen_like.simulation.hosts.member_users import MemberUsers
from jepsen_like.simulation.hosts.open_calls import OpenCalls
from jepsen_like.simulation.hosts.operator import Operator
from jepsen_like.simulation.hosts.plan import FAULT_KINDS, GroupPlan, HostsPlan
from jepsen_like.simulation.hosts.remote_users import MARGIN_S, TIMEOUT_S, RemoteUser
from jepsen_like.simulation.hosts.seat import Running, Seat
from jepsen_like.simulation.hosts.virtual_host import CLOSE_S, VirtualHost, first_of
from jepsen_like.simulation.hosts.virtual_internet import VirtualInternet
from jepsen_like.simulation.hosts.watch import Watch
from jepsen_like.simulation.trace import Trace

# How long healed hosts may take until every group leads, commits and agrees: elections, retries of
# links after at most a second, snapshots, the replacement of a member that was under way.
CONVERGE_S = 40.0
LOOK_EVERY_S = 0.25
# The counts that some hundred seeds together must reach, each at least once.
EXPECTED_OF_HOSTS = (
    *FAULT_KINDS,
    "acknowledged by members",
    "acknowledged to clients",
    "appends in sessions found done",
    "appends in sessions of clients",
    "appends in sessions of members",
    "entries that clients followed",
    "members closed in order",
    "members replaced",
    "nodes ended by their application",
    "reads on followers",
    "reads on leaders",
    "snapshots installed",
    "snapshots written",
    "stale reads",
    "transfers",
)
# Limit of a wait in a run, after which the run is stuck.
STUCK_S = 600.0


class HostSimulation:
    """Hosts, their groups, clients and faults. `run` returns, or raises Failure.

    `looked_at` is the share of the moments at rest when all waiting tasks are woken for nothing.
    """

    def __init__(self, plan: HostsPlan, trace: Trace | None = None, looked_at: float = 0.0) -> None:
        self._plan = plan
        self._looked_at = looked_at
        self._clock = LeapingClock()
        self._journal = Journal(trace)
        self._found: tuple[str, str] | None = None
        self._scope = trio.CancelScope()
        self._ended_at: float | None = None  # trio itself may leap once more when it ends

    @property
    def virtual_s(self) -> float:
        return self._clock.now if self._ended_at is None else self._ended_at

    @property
    def digest(self) -> str:
        return self._journal.digest

    @property
    def coverage(self) -> Coverage:
        return self._journal.coverage

    def run(self) -> None:
        """Run to the end. Raises Failure with the first promise that was broken."""
        try:
            run_in_virtual_time(self._plan.seed, self._clock, self._main)
        except Exception as error:
            if self._found is None:  # else the error is a consequence of what was found
                how = "".join(traceback.format_exception(error))
                self._found = (f"no {type(first_of(error)).__name__}", how)
        if self._found is not None:
            raise Failure(self._plan.seed, self.virtual_s, *self._found)

    def _broken(self, promise: str, how: str) -> None:
        if self._found is None:
            self._found = (promise, how)
            self._journal.note("-", f"{promise}: {how}")
            self._scope.cancel()

    # --- the run ----------------------------------------------------------------------------------

    async def _main(self) -> None:
        tasks = trio.lowlevel.current_statistics().tasks_living
        with self._scope, trio.move_on_after(STUCK_S) as stuck:
            async with trio.open_nursery() as nursery:
                world = _World(self._plan, self._journal, self._broken, nursery)
                if self._looked_at:
                    chance = Chance(self._plan.seed, "looks at rest")
                    look = LastWakeUp(
                        *(chance, self._looked_at, world.state),
                        *(world.turns, world.left_waiting, self._broken),
                    )
                    self._clock.at_rest = look.at_rest
                    world.chain_appends()
                await world.run()
            self._check_leaks(world, tasks)
        if stuck.cancelled_caught:
            self._broken("everything ends", f"the run is stuck: {[*map(str, world.calls.all)]}")

    def _check_leaks(self, world: _World, tasks: int) -> None:
        streams = [stream.name for stream in world.internet.open_streams]
        if streams:
            self._broken("no stream is left open", ", ".join(streams[:5]))
        self._ended_at = trio.current_time()
        left = trio.lowlevel.current_statistics().tasks_living - tasks
        if left:
            self._broken("no task is left", f"{left} tasks")


def _is_connected(status: Status, member: str) -> bool:
    seen = status.peers.get(member)
    return seen is not None and seen.connected


class _World:
    """All objects of a run, connected."""

    def __init__(
        self, plan: HostsPlan, journal: Journal, broken: Broken, nursery: trio.Nursery
    ) -> None:
        self.internet = VirtualInternet(plan.line, Chance(plan.seed, "network"), journal.sent)
        self.calls = OpenCalls()
        self._plan = plan
        self._journal = journal
        self._broken = broken
        self._nursery = nursery
        books = {group.name: GroupBook(group.name, broken) for group in plan.groups}
        self._books = books
        around = Around(
            plan,
            self.internet,
            journal,
            books,
            self.calls,
            broken,
            nursery,
            lambda: self._breakage.calm_since,
        )
        self._hosts = [VirtualHost(around, number) for number in range(plan.hosts)]
        peers = {group.name: self._take_seats(around, group) for group in plan.groups}
        self._users = MemberUsers(around, self._hosts)
        self._breakage = Breakage(around, self._hosts, self._users.use_once_more)
        self._operators = [Operator(around, group, self._hosts) for group in plan.groups]
        self._clients = []
        for number in range(plan.clients):
            busy = [group for group in plan.groups if not group.is_idle]
            group = busy[number % len(busy)]
            client = RemoteUser(around, number, group, peers[group.name])
            self._breakage.client_came(client.name)
            self._clients.append(client)
        self._watch = Watch(around, self._hosts)

    def _take_seats(self, around: Around, group: GroupPlan) -> dict[str, str]:
        peers = {f"n{number}": self._hosts[number].address for number in group.hosts}
        for number in group.hosts:
            self._hosts[number].add(Seat(around, group, f"n{number}", peers, joins=False))
        return peers

    def _running(self) -> Iterator[Running]:
        return (
            seat.running for host in self._hosts for seat in host.seats if seat.running is not None
        )

    def state(self) -> object:
        """Return all that work changes: bytes sent, each member's log, and the calls that wait."""
        members = []
        for running in self._running():
            status, config = running.node.status(), running.node.config
            member = (config.group, config.node_id, status.role, status.term)
            log = (status.last_index, status.committed, status.applied, status.pending_entries)
            members.append((*member, *log))
        # A transfer is given up with the heartbeat after its time, so not exactly then.
        calls = [text for call in self.calls.all if not (text := str(call)).startswith("transfer")]
        return self._journal.bytes_sent, members, calls

    def turns(self) -> Iterable[Callable[[], None]]:
        return [running.node._driver.turn for running in self._running()]

    def left_waiting(self) -> str:
        """Return the appends that wait at members that do not lead and have applied all that is
        committed.
        """
        left = []
        for running in self._running():
            status = running.node.status()
            if (
                status.pending_entries
                and status.role != "leader"
                and status.applied == status.committed
            ):
                name = f"{running.node.config.group}/{running.node.config.node_id}"
                left.append(f"{status.pending_entries} appends of {name}")
        return "; ".join(left)

    def chain_appends(self) -> None:
        """Have each answer to an append of some callers submit their next one, in the same turn."""
        self._users.chains = True

    async def run(self) -> None:
        """Run to the end, when no task runs any more."""
        for host in self._hosts:
            host.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch.run)
            async with trio.open_nursery() as users:
                users.start_soon(self._users.run)
                for client in self._clients:
                    users.start_soon(client.run)
                if self._plan.changes:
                    for operator in self._operators:
                        users.start_soon(operator.run)
                await self._let_break()
                self._breakage.put_right()
                self._users.stopped = True
                for client in self._clients:
                    client.stopped = True
                for operator in self._operators:
                    operator.stopped = True
                with trio.move_on_after(CONVERGE_S) as patience:
                    await self._converge()
                if patience.cancelled_caught:
                    self._broken("progress after the faults", self._what_is_missing())
                await self._end_calls()
            nursery.cancel_scope.cancel()
        await self._close()

    async def _let_break(self) -> None:
        async with trio.open_nursery() as faults:
            for kind, mean_s in self._plan.fault_every_s.items():
                faults.start_soon(self._breakage.run, kind, mean_s)
            await trio.sleep(self._plan.fault_s)
            faults.cancel_scope.cancel()

    # --- the end ----------------------------------------------------------------------------------

    async def _converge(self) -> None:
        probed: set[str] = set()
        while True:
            await trio.sleep(LOOK_EVERY_S)
            for operator in self._operators:
                leader = operator.leader()
                if leader is not None and operator.group.name not in probed:
                    await self._probe(operator.group, leader, probed)
            if len(probed) == len(self._plan.groups) and not self._what_is_missing():
                return

    async def _probe(self, group: GroupPlan, leader: Running, probed: set[str]) -> None:
        body = f"{group.name} probe {trio.current_time()!r}".encode()
        try:
            with trio.move_on_after(LOOK_EVERY_S):
                appended = await leader.node.append(body)
                self._books[group.name].acknowledge(body, appended.index)
                probed.add(group.name)
        except DLedgerError:
            return

    def _what_is_missing(self) -> str:
        """Return where groups do not agree yet; empty if they do."""
        missing = []
        for operator in self._operators:
            missing += self._missing_in(operator)
        missing += [f"{client.name} finds no leader" for client in self._clients if client.lacks]
        return "; ".join(missing)

    def _missing_in(self, operator: Operator) -> list[str]:
        name, leader = operator.group.name, operator.leader()
        if leader is None:
            return [f"{name}: no member leads"]
        configuration = leader.node.configuration.configuration
        if configuration.is_joint:
            return [f"{name}: a joint phase lasts"]
        seats = {
            seat.member: seat
            for host in self._hosts
            for seat in host.seats
            if seat.group.name == name
        }
        missing = []
        status = leader.node.status()
        for member in sorted(configuration.members):
            running = seats[member].running
            if running is None:
                missing.append(f"{name}/{member} is closed")
            elif running.node.status().applied != status.last_index:
                missing.append(
                    f"{name}/{member} applied {running.node.status().applied} of "
                    f"{status.last_index}"
                )
            elif running is not leader and not _is_connected(status, member):
                missing.append(f"{name}: the leader has no channel to {member}")
            elif running.machine.index != self._books[name].applied:
                missing.append(f"{name}/{member}: its state ends with {running.machine.index}")
            else:
                self._books[name].check_nothing_lost(
                    member, running.machine.index, running.machine.digest
                )
        return missing

    async def _end_calls(self) -> None:
        """Check that every call ends within its time."""
        with trio.move_on_after(TIMEOUT_S + MARGIN_S) as patience:
            await until(lambda: not self.calls.all)
        if patience.cancelled_caught:
            self._broken("every call ends", "; ".join(map(str, self.calls.all)))

    async def _close(self) -> None:
        for host in self._hosts:
            host.returns = False
            host.close()
        with trio.move_on_after(2 * CLOSE_S) as patience:
            await until(lambda: all(host.process is None for host in self._hosts))
        if patience.cancelled_caught:
            running = [host.name for host in self._hosts if host.process is not None]
            self._broken("hosts close", f"{', '.join(running)} did not")
