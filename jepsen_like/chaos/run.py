"""One run: members and clients as processes, faults by the schedule, and the results."""

from __future__ import annotations

import datetime
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import trio

from dledger_mq.clusters.certificate_folder import CertificateFolder
from jepsen_like.chance import Chance
from jepsen_like.chaos.client_process import ClientProcess, client_process
from jepsen_like.chaos.disks import powered_disk, small_disk, take_down_orphans
from jepsen_like.chaos.fault_log import FaultLog
from jepsen_like.chaos.harness_failed import HarnessFailed
from jepsen_like.chaos.inside.insides import Insides, LibraryMissing
from jepsen_like.chaos.links.counts import Counts
from jepsen_like.chaos.links.namespaces import why_not
from jepsen_like.chaos.links.switched_network import SwitchedNetwork, switched_network
from jepsen_like.chaos.loopback import loopback
from jepsen_like.chaos.members.group import LOOK_S, Group
from jepsen_like.chaos.members.member import Member, OrderFailed
from jepsen_like.chaos.members.supervisor import Supervisor
from jepsen_like.chaos.members_compared import (
    Look,
    log_differences,
    looks_at_the_same,
    state_differences,
)
from jepsen_like.chaos.nemeses.catalogue import NEMESES, Lane
from jepsen_like.chaos.nemeses.certificate_faults import NEMESIS as CERTIFICATES
from jepsen_like.chaos.nemeses.certificate_faults import CertificateFaults
from jepsen_like.chaos.nemeses.disk_faults import DISK_FAULTS, free
from jepsen_like.chaos.nemeses.executor import (
    Executor,
    Executors,
    Skipped,
    absent,
    at_most,
    executor_of,
)
from jepsen_like.chaos.nemeses.hostile_client import NEMESIS as HOSTILE
from jepsen_like.chaos.nemeses.hostile_client import PREFIX, HostileClient
from jepsen_like.chaos.nemeses.inside_faults import InsideFaults
from jepsen_like.chaos.nemeses.membership_faults import MembershipFaults
from jepsen_like.chaos.nemeses.network_faults import NetworkFaults
from jepsen_like.chaos.nemeses.process_faults import (
    CLIENTS,
    NAME_SERVER,
    PROCESS_FAULTS,
    side_faults,
)
from jepsen_like.chaos.nemeses.schedule import Fault, schedule
from jepsen_like.chaos.nemeses.user_faults import NEMESIS as USERS
from jepsen_like.chaos.nemeses.user_faults import user_faults
from jepsen_like.chaos.nemeses.users_nemesis import find_nemeses
from jepsen_like.chaos.plan import RunPlan
from jepsen_like.chaos.security_made import make_security
from jepsen_like.chaos.services import find_service
from jepsen_like.chaos.side_process import SideProcess
from jepsen_like.chaos.stages.brokers import EXPLANATIONS, BrokerStage
from jepsen_like.chaos.stages.library import CALL_TIMEOUT_S, LibraryStage
from jepsen_like.chaos.stages.stage import Setting, Stage
from jepsen_like.chaos.watcher.watched import watched
from jepsen_like.chaos.wiring import CLIENTS_HOST, Wiring

# Members that a run of changing members may add; each takes an address for good.
SPARES = 12
# A busy machine may take minutes to start all processes, which says nothing of them.
START_TIMEOUT_S = 180.0
# After all faults ended the group must be whole within this time: restarts, a snapshot, proofs.
WHOLE_TIMEOUT_S = 60.0
# Longer than any fault takes to begin and to heal: changes of members are tried for a minute each,
# and members of a group of seven are restarted one after the other.
STUCK_AFTER_S = 300.0
# Clients go on for so long after the group is whole, or a fraction of a short run.
QUIET_S = 3.0
# Longer than any workload may have to wait for its last messages.
FINAL_TIMEOUT_S = 180.0
LOOK_EVERY_S = 1.0
# How long a fault that harms data waits for a whole group; it is left out otherwise.
WHOLE_BEFORE_HARM_S = 10.0
TELL_EVERY_S = 0.5


class Progress(NamedTuple):
    phase: str
    now_s: float
    until_s: float
    counts: Mapping[str, int]
    broken: tuple[str, ...]
    findings: int


Tell = Callable[[Progress], None]


@dataclass
class RunResult:
    """The results of a run, besides its files."""

    network: str = "loopback"
    left_out: tuple[str, ...] = ()
    links: Counts = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    events: list[dict[str, object]] = field(default_factory=list)
    quiet_from_ns: int = 0
    interrupted: bool = False
    aborted: bool = False


class Run:
    """A run in a folder, which is empty at first."""

    # Set once the run has begun.
    _faults: FaultLog
    _wiring: Wiring
    _group: Group

    def __init__(self, plan: RunPlan, folder: Path, tell: Tell) -> None:
        self.result = RunResult()
        self._plan = plan
        self._folder = folder.absolute()
        self._tell = tell
        self._begin_ns = time.monotonic_ns()
        self._names = [f"n{number}" for number in range(plan.nodes)]
        self._spares = [f"n{plan.nodes + number}" for number in range(SPARES)]
        self._unused = iter(self._spares)
        self._stops = trio.Event()
        self._broken: dict[int, str] = {}
        self._phase, self._until_s = "starting", 0.0
        self._switched: SwitchedNetwork | None = None
        self._network: NetworkFaults | None = None
        self._insides: Insides | None = None
        self._no_insides = ""
        self.stage = self._made_stage()
        self._nemeses = find_nemeses(plan.nemeses)
        catalogue = self._nemeses.catalogue
        self.schedule = schedule(plan.seed, plan.nemeses, plan.time_s, catalogue)

    def stop(self) -> None:
        """End the faults now, heal, and go on with the quiet phase."""
        self.result.interrupted = True
        self._stops.set()

    @property
    def history(self) -> Path:
        return self._folder / "history.jsonl"

    def _made_stage(self) -> Stage:
        plan = self._plan
        setting = Setting(plan, self._folder, self._names, self._spares, self._begin_ns)
        if plan.service in EXPLANATIONS:
            return BrokerStage(setting)
        return LibraryStage(setting, find_service(plan.service))

    # --- the whole run --------------------------------------------------------------------------

    async def run(self) -> None:
        """Make the whole run. Raises HarnessFailed."""
        for name in ("members", "data"):
            (self._folder / name).mkdir(parents=True)
        with ExitStack() as stack:
            stack.enter_context(watched(self._folder))
            self._faults = FaultLog(self._folder / "faults.jsonl", self._now_ns, _wall)
            stack.callback(self._faults.close)
            self.result.events = self._faults.events
            take_down_orphans()
            for name in self._names:
                if "power" in self._plan.nemeses:
                    stack.enter_context(powered_disk(self._data(name)))
                elif "disk-full" in self._plan.nemeses:
                    stack.enter_context(small_disk(self._data(name)))
            if any(self._nemeses.catalogue[name].from_inside for name in self._plan.nemeses):
                try:
                    insides = Insides(self._folder / "inside", os.environ.get("LD_PRELOAD"))
                    self._insides = stack.enter_context(closing(insides))
                except LibraryMissing as error:
                    self._no_insides = str(error)
            hosts = [*self._names, *self._spares, *self.stage.hosts]
            async with self._wired(hosts) as self._wiring:
                await self._run_wired()
        harmed = {"flip", "tail"} & set(self._plan.nemeses)
        folders = {name: self._data(name) / f"dledger-{name}" for name in self._names}
        self.result.findings += log_differences(folders, verify=not harmed)

    @asynccontextmanager
    async def _wired(self, hosts: list[str]) -> AsyncIterator[Wiring]:
        """Make the network of the run, with links that can break if this machine has them."""
        wanted, problem = self._plan.network, why_not()
        if wanted == "none" or (wanted == "auto" and problem is not None):
            yield loopback(hosts, () if problem is None else (f"broken links: {problem}",))
            return
        if problem is not None:
            raise HarnessFailed(problem)
        async with switched_network([CLIENTS_HOST, *hosts], self._plan.seed) as network:
            self._switched, self._network = network, NetworkFaults(network)
            yield network.wiring

    async def _run_wired(self) -> None:
        wiring = self._wiring
        left_out = [f"faults from inside: {self._no_insides}"] if self._no_insides else []
        self.result.network, self.result.left_out = wiring.kind, (*wiring.left_out, *left_out)
        async with trio.open_nursery() as members_nursery:
            group = Group(lambda member: members_nursery.start_soon(supervisor.watch, member))
            supervisor = Supervisor(group.members, self._faults, self._finding, self._replace_disk)
            self._group = group
            if self.stage.security is not None:
                names = (*self._names, *self._spares)
                make_security(self.stage.security, names, wiring, _now())
            beside = {
                name: SideProcess(name, command, self._folder / f"{name}.log")
                for name, command in self.stage.beside_commands(wiring).items()
            }
            for process in beside.values():
                members_nursery.start_soon(process.run)
            for name in self._names:
                joining = self._plan.grown and name != self._names[0]
                group.start(self._member(name, joining=joining))
            if self._plan.grown:
                await self._add_others()
            if not await group.wait_healthy(START_TIMEOUT_S):
                raise HarnessFailed(
                    f"the group was not whole {START_TIMEOUT_S:g} s after its start: see "
                    f"{self._folder / 'members'}"
                )
            command = self.stage.client_command(wiring)
            async with client_process(command, self._folder / "clients.log") as clients:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._tell_progress, clients)
                    if self.stage.has_invariant:
                        nursery.start_soon(self._look_at_invariants)
                    # On a busy machine that takes longer than the faults of a short run.
                    await clients.wait_started(START_TIMEOUT_S)
                    if self.stage.clients_come_back:
                        beside[CLIENTS] = clients.process
                    await self._break(self._executors(beside, clients))
                    await self._quieten()
                    self._phase = "last reads"
                    await clients.end_calls(4 * CALL_TIMEOUT_S)
                    self.result.unanswered = await clients.make_final_calls(FINAL_TIMEOUT_S)
                    nursery.cancel_scope.cancel()
                await self._compare_states()
            if self._switched is not None:
                self.result.links = await self._switched.counts()
            self._phase = "stopping"
            members_nursery.cancel_scope.cancel()

    async def _break(self, executors: Executors) -> None:
        """Carry out the schedule; return when all faults are healed."""
        self._phase, self._until_s = "faults", self._now_s() + self._plan.time_s
        zero = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _, lane in itertools.groupby(
                sorted(self.schedule, key=lambda fault: (fault.lane, fault.begin_s)),
                key=lambda fault: fault.lane,
            ):
                nursery.start_soon(self._lane, list(lane), zero, executors)
            nursery.start_soon(self._wait_until, zero + self._plan.time_s)

    async def _lane(self, lane: list[Fault], zero: float, executors: Executors) -> None:
        for fault in lane:
            await self._wait_until(zero + fault.begin_s)
            harms_data = self._nemeses.catalogue[fault.nemesis].harms_data
            if harms_data or fault.nemesis in (HOSTILE, CERTIFICATES):
                await self._wait_until_whole()
            if self._stops.is_set() or trio.current_time() > zero + self._plan.time_s:
                return
            limit_s = fault.lasts_s + STUCK_AFTER_S
            with at_most(limit_s, f"fault {fault.number} ({fault.kind})"):
                await self._carry_out(fault, executor_of(executors, fault.nemesis, fault.kind))

    async def _carry_out(self, fault: Fault, executor: Executor) -> None:
        what = {"fault": fault.number, "nemesis": fault.nemesis, "kind": fault.kind}
        begin_ns, has_begun = self._now_ns(), False
        chance, faults = Chance(self._plan.seed, fault.chance), self._faults
        try:
            async with executor(self._group, chance, fault.kind) as done:
                told = {"targets": list(done.targets), "details": dict(done.details)}
                faults.note("begin", **{**what, **told, "time_ns": begin_ns})
                has_begun = True
                self._broken[fault.number] = f"{fault.kind} {','.join(done.targets)}".strip()
                await self._wait_until(trio.current_time() + fault.lasts_s)
        except Skipped as skipped:
            faults.note("end" if has_begun else "skipped", **what, reason=str(skipped))
        else:
            effect = dict(done.effect())
            faults.note("end", **what, **({"effect": effect} if effect else {}))
        finally:
            self._broken.pop(fault.number, None)

    async def _wait_until_whole(self) -> None:
        """Wait some seconds for the group to recover from the last fault, unless the run is to
        stop.
        """
        with trio.move_on_after(WHOLE_BEFORE_HARM_S):
            while not (self._group.healthy or self._stops.is_set()):
                await trio.sleep(LOOK_S)

    async def _wait_until(self, moment: float) -> None:
        """Wait until a time of trio's clock, or until the run is asked to stop."""
        with trio.move_on_at(moment):
            await self._stops.wait()

    def _executors(self, beside: Mapping[str, SideProcess], clients: ClientProcess) -> Executors:
        """Return the executors of the faults; faults that cannot be made in this run are
        skipped.
        """
        no_links = absent("the links of this run cannot break")
        no_insides = absent(self._no_insides)
        no_joining = absent("members cannot be added to such a group while it runs")
        membership, network, insides = self._membership_faults(), self._network, self._insides
        hostile = HostileClient(
            self._wiring,
            self._folder / "hostile.log",
            self._finding,
            lambda: all(what.startswith(PREFIX) for what in self._broken.values()),
        )
        return {
            **{name: no_links for name, one in NEMESES.items() if one.lane is Lane.NETWORK},
            **(network.executors if network is not None else {}),
            **{name: no_insides for name, one in NEMESES.items() if one.from_inside},
            **(InsideFaults(insides.steerings, self._finding).executors if insides else {}),
            **(membership.executors if self.stage.can_join else {"membership": no_joining}),
            **PROCESS_FAULTS,
            **DISK_FAULTS,
            **side_faults(beside),
            **hostile.executors,
            **self._security_faults(beside, clients),
            **self._nemeses.executors,
        }

    def _security_faults(
        self, beside: Mapping[str, SideProcess], clients: ClientProcess
    ) -> Executors:
        if self.stage.security is None:
            no_users = absent("this workload has no certificates and no users")
            return {CERTIFICATES: no_users, USERS: no_users}
        folder = CertificateFolder(self.stage.security.certificates)
        certificates = CertificateFaults(
            folder, self._wiring, beside[NAME_SERVER], self._finding, _now
        )
        return {**certificates.executors, **user_faults(clients.change)}

    def _membership_faults(self) -> MembershipFaults:
        return MembershipFaults(
            lambda name: self._member(name or next(self._unused), joining=True),
            lambda name: self._wiring.addresses[name].peer,
            self._finding,
        )

    async def _add_others(self) -> None:
        """Have a group of one grow. Raises HarnessFailed."""
        try:
            await self._membership_faults().add(self._group, self._names[1:])
        except Skipped as skipped:
            raise HarnessFailed(str(skipped)) from skipped

    async def _quieten(self) -> None:
        """Wait until the group is whole after all faults, then let clients go on for a while.

        A group that does not become whole is a finding.
        """
        self._phase = "healing"
        self._faults.note("healed")
        self._until_s = self._now_s() + WHOLE_TIMEOUT_S
        if not await self._group.wait_healthy(WHOLE_TIMEOUT_S):
            told = "; ".join(f"{member.name}: {_told(member)}" for member in self._group.present)
            self._finding(
                f"the group was not whole {WHOLE_TIMEOUT_S:g} s after all faults were healed: "
                f"{told}"
            )
        self._phase = "quiet"
        self.result.quiet_from_ns = self._now_ns()
        self._faults.note("quiet")
        quiet_s = min(QUIET_S, self._plan.time_s / 5)
        self._until_s = self._now_s() + quiet_s
        await trio.sleep(quiet_s)

    # --- looking --------------------------------------------------------------------------------

    async def _look_at_invariants(self) -> None:
        """Ask each member once a second for a broken invariant."""
        while True:
            await trio.sleep(LOOK_EVERY_S)
            for member in list(self._group.present):
                try:
                    seen = await member.order("look", LOOK_EVERY_S)
                except OrderFailed:
                    continue  # it is broken at the moment, or cut off: it is asked again
                if seen["broken"] is not None:
                    self._faults.note("broken", member=member.name, **seen)
                    self._finding(f"{member.name} at entry {seen['index']}: {seen['broken']}")

    async def _compare_states(self) -> None:
        """Check that the states of all members are equal at the end, and keep the invariant."""
        members = {member.name: member for member in self._group.present}

        async def look(name: str) -> Look | None:
            try:
                seen = await members[name].order("look", FINAL_TIMEOUT_S, state=True)
            except OrderFailed as error:
                self._finding(f"no state in the end: {error}")
                return None
            return Look(seen["index"], seen["state"], seen["broken"])

        looks = await looks_at_the_same(members, look)
        for name, seen in looks.items():
            if seen.broken is not None:
                self._finding(f"{name} in the end: {seen.broken}")
        ends = {name: seen.after for name, seen in looks.items()}
        if len(set(ends.values())) > 1:
            self._finding(f"the members have not applied the same in the end: {ends}")
            return
        for told in state_differences({name: seen.state for name, seen in looks.items()}):
            self._finding(told)

    async def _tell_progress(self, clients: ClientProcess) -> None:
        while True:
            broken = tuple(self._broken.values())
            self._tell(
                Progress(
                    self._phase,
                    self._now_s(),
                    self._until_s,
                    clients.counts,
                    broken,
                    len(self.result.findings),
                )
            )
            await trio.sleep(TELL_EVERY_S)

    def _finding(self, text: str) -> None:
        if text not in self.result.findings:
            self.result.findings.append(text)

    # --- processes ------------------------------------------------------------------------------

    def _data(self, name: str) -> Path:
        return self._folder / "data" / name

    def _member(self, name: str, *, joining: bool = False) -> Member:
        command = self.stage.member_command(self._wiring, name, joining=joining)
        if self._insides is not None:
            command = self._insides.command(name, command)
        log = self._folder / "members" / f"{name}.log"
        return Member(name, command, log, self._data(name))

    def _replace_disk(self, member: Member) -> None:
        """Repair the disk of a member that reports it as full or broken, as an operator does."""
        free(member.data)
        if self._insides is not None:
            self._insides.steerings[member.name].heal()

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self._begin_ns

    def _now_s(self) -> float:
        return self._now_ns() / 1e9


def _told(member: Member) -> str:
    if not member.runs:
        return "does not run"
    status = member.status
    return ", ".join(f"{name} {status.get(name)}" for name in ("role", "leader", "applied"))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _wall() -> str:
    return _now().isoformat(timespec="milliseconds")
