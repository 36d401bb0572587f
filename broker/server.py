"""A running broker: a member of the log's group, the server for clients, and the registrations."""

import hashlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import trio

from broker.access.guard import ACCESS_GUARD
from broker.access.log_authority import LogAuthority
from broker.access.user_changes import RANDOM_BYTES
from broker.audit.audit_log import AUDIT_LOG
from broker.config import BrokerConfig
from broker.features import REGISTRY
from broker.formats.gate import READ_BY_ALL
from broker.formats.state import FORMATS
from broker.log.guarded_log import GuardedLog
from broker.machine import BrokerMachine
from broker.retention.disk_usage import used_percent as disk_used_percent
from broker.retention.policy import utc_hour
from broker.services import SERVICES
from broker.serving.broker_tls import BrokerTls
from broker.serving.confirmed_reads import ConfirmedReads
from broker.serving.ending import Ending
from broker.serving.lasting_task import lasting
from broker.serving.member import MEMBER, Member
from broker.serving.parts import Parts
from broker.serving.registrar import Registrar
from broker.serving.requests import Requests
from broker.serving.routes import ROUTES, Routes
from broker.settings.settings import SETTINGS
from broker.settings.state import CHANGED_SETTINGS
from broker.settings.user_shares import USER_SHARES
from broker.store.consume_queue_disk import remove_leftovers
from broker.store.consume_queues import MAX_OPEN_FILES, ConsumeQueues
from broker.store.rebuild_steps import RebuildSteps
from broker.topics.state import TOPICS
from broker.watched import Watched
from dledger import MemberAlarm, Node, RoleChange, open_node, serve_metrics
from dledger.start_report import StartReport
from dledger.unwrapping_nursery import unwrapping_nursery
from dledger.waits.blocking_work import in_a_thread
from remoting.bodies.registration import BrokerRegistration
from remoting.bodies.topic_config import DataVersion
from remoting.net.client import RemotingClient
from remoting.net.client_work import ClientWork
from remoting.net.server import Server, ServerLimits, listen
from remoting.wire.quoted import quoted
from remoting.wire.users import AccessFile

_log = logging.getLogger(__name__)

# Files that a broker opens besides its clients' connections: those of consume queues, and as many
# for the log's segments and snapshots, and the connections to members and name servers.
SPARE_DESCRIPTORS: Final = 2 * MAX_OPEN_FILES

# All members of a group whose log has this format can register with the group's proof.
PROOF_VERSION: Final = 6

# Waiting pulls may be held for this much longer than they ask.
TICK_S = 0.2

# The pause between two searches for silent clients; RocketMQ's value.
LOOK_OVER_S = 10.0


class Report(Protocol):
    """Is told one line of news of a broker, and the same in the fields of a log line."""

    def __call__(self, text: str, /, **fields: object) -> None: ...


class Surroundings(NamedTuple):
    """The process and the machine of a broker.

    Attributes:
        wall_clock_ms: milliseconds since 1970; decides store times.
        process_id: makes generated message keys unique.
        hour_of: returns the local hour of a time in milliseconds since 1970.
        used_percent: returns how full the disk of a directory is.
    """

    wall_clock_ms: Callable[[], int]
    process_id: int
    hour_of: Callable[[int], int] = utc_hour
    used_percent: Callable[[Path], float] = disk_used_percent


class Broker:
    """One running member. Made by `run_broker`."""

    def __init__(
        self,
        config: BrokerConfig,
        node: Node,
        machine: BrokerMachine,
        client: RemotingClient,
        surroundings: Surroundings,
        serving: ServerLimits,
        tls: BrokerTls,
        authority: LogAuthority | None = None,
    ) -> None:
        self.tls = tls
        self.authority = authority
        self.config = config
        self.node = node
        self.machine = machine
        self._started_ms = surroundings.wall_clock_ms()
        self._log = log = GuardedLog(node)
        self._client = client
        self._registrar = Registrar(client, config, self._registration, self._led_term, self._proof)
        self._work = ClientWork()
        self._reads = ConfirmedReads(node.read, config.limits.max_waiting_reads, self._work)
        self.parts = Parts(
            config=config,
            log=log,
            state=machine.state,
            queues=machine.queues,
            announce=self._registrar.announce,
            confirm=self._reads.add,
            work=self._work,
            led_term=self._led_term,
            wall_clock_ms=surroundings.wall_clock_ms,
            clock=trio.lowlevel.current_clock().current_time,
            process_id=surroundings.process_id,
            figures=self._figures,
            made={
                MEMBER: Member(
                    node,
                    machine,
                    surroundings.hour_of,
                    surroundings.used_percent,
                    lambda: self.server,
                    lambda: self.requests.connections,
                    tls.members,
                ),
                ROUTES: Routes(client.request_nowait, config.nameservers),
                RANDOM_BYTES: os.urandom,
                READ_BY_ALL: lambda: node.machine_version,
            },
        )
        self._services = [service(self.parts) for service in SERVICES]
        self.requests = Requests(
            config.group,
            log,
            self._services,
            self._reads.add,
            self._registrar.announce,
            lambda: not machine.queues.damaged,
            None if config.access is None else self.parts[ACCESS_GUARD].check,
            self.parts[USER_SHARES].counted,
            self.parts[AUDIT_LOG].is_recording,
            self.parts[AUDIT_LOG].record,
        )
        if authority is not None:
            authority.guard = self.parts[ACCESS_GUARD]
        self.server = Server(self.requests, serving, tls.server, self._work)
        machine.on_applied = self.requests.applied

    def reconfigure(self, config: BrokerConfig) -> None:
        """Take over the settings of `config` that may change while a broker runs.

        Settings that operators have changed in the log go before them. Raises ConfigInvalid; then
        nothing changes.
        """
        wanted = config.node
        self.node.reconfigure(
            self.node.config.with_changes(
                {
                    "preferred_leader": wanted.preferred_leader,
                    "snapshots": wanted.snapshots,
                }
            )
        )
        self.parts[SETTINGS].start_with(config)
        if self.authority is not None:
            self.authority.asks = config.log_asks

    def take_access(self, file: AccessFile) -> None:
        """Take over the administrator of a file with the same seal key. Connections stay, and
        their next requests are judged by it.
        """
        self.parts[ACCESS_GUARD].change_administrator(file.admin)
        if self.authority is not None:
            self.authority.change_administrator(file.admin)
        self._client.sign_by(file.admin)
        self._registrar.announce()  # a name server may have refused the earlier one

    def _registration(self, term: int) -> Generator[None, None, BrokerRegistration]:
        topics = self.machine.state[TOPICS]
        changed = self.machine.state[CHANGED_SETTINGS]
        version = DataVersion(
            topics.topic_changes + changed.setting_changes,
            max(topics.topics_changed_ms, changed.settings_changed_ms),
            term,
        )
        routed = yield from self.parts[SETTINGS].routed_in_steps(topics.configs)
        return BrokerRegistration(routed, version)

    def _proof(self) -> str:
        """Return a secret of the group's members; "" until all members of the group know it.

        A member of an earlier version does not know it, and could not take over the name.
        """
        birth = self.node.status().birth
        if not birth or self.machine.state[FORMATS].format_version < PROOF_VERSION:
            return ""
        return hashlib.sha256(f"{self.config.group} {birth}".encode()).hexdigest()

    def _led_term(self) -> int | None:
        return self.requests.led_term

    async def run(
        self,
        report: Report,
        task_status: trio.TaskStatus["Broker"],
        start: StartReport | None,
    ) -> None:
        """Serve until cancelled.

        Args:
            report: see `run_broker`.
            task_status: told this broker when it listens.
            start: told when it listens and when it knows a leader, and then reported.

        Raises:
            PortInUse, ListenFailed: clients cannot connect.
        """
        name = f"broker {self.config.node_id}"
        try:
            async with trio.open_nursery() as nursery:
                at = self.config.listen
                take = partial(self.server.take, trusts_proxy=self.config.trusts_proxy)
                address = await nursery.start(take, await listen(at.host, at.port))
                report(f"{name} listening on {address}", event="listening")
                if start is not None:
                    start.ended("port")
                nursery.start_soon(self.server.run)
                nursery.start_soon(self._registrar.run)
                nursery.start_soon(self._reads.run)
                nursery.start_soon(self._tick)
                nursery.start_soon(self._look_over)
                nursery.start_soon(self._mend)
                nursery.start_soon(self._remove_leftovers)
                for service in self._services:
                    for task in service.tasks:
                        nursery.start_soon(lasting, task, name=task)
                nursery.start_soon(self._follow_role, name, report, start)
                task_status.started(self)
        finally:
            self.machine.on_applied = None

    async def end(self) -> None:
        """Hand over leadership and answer clients, in 5 s at most; then the caller
        cancels `run`.
        """
        await Ending(self.node, self._log, self.requests, self.say_farewell).run()

    async def say_farewell(self) -> None:
        """Tell the name servers that this member is about to end; half a second at most."""
        await self._registrar.say_farewell()

    async def _follow_role(self, name: str, report: Report, start: StartReport | None) -> None:
        async for change in self.node.role_changes():
            self.requests.follow_role()
            report(f"{name} {_role_words(change)}", event="role", **_role_fields(change))
            if start is not None and change.leader is not None:
                start.ended("leader")
                report(f"{name} {start}", event="started")
                start = None

    async def _tick(self) -> None:
        while True:
            await trio.sleep(TICK_S)
            self.requests.tick()
            self.machine.queues.write_some()

    async def _look_over(self) -> None:
        while True:
            await trio.sleep(LOOK_OVER_S)
            self.requests.look_over()

    async def _mend(self) -> None:
        """Rebuild the queues that a snapshot of another member left damaged, then serve."""
        while True:
            await trio.sleep(TICK_S)
            if self.machine.queues.damaged:
                await rebuild_queues(self.node, self.machine)
                self.requests.follow_role()

    async def _remove_leftovers(self) -> None:
        """Remove the files of deleted topics, in a thread."""
        folder = os.fspath(self.config.directory / "consumequeue")
        while True:
            try:
                await in_a_thread(remove_leftovers, folder)
            except OSError as error:
                _log.warning("files of deleted topics stay for now: %s", quoted(error))
            await trio.sleep(LOOK_OVER_S)

    def _figures(self) -> Mapping[str, str]:
        """Return the figures that RocketMQ's tools show, and further ones of this broker."""
        status = self.node.status()
        figures = {
            "bootTimestamp": str(self._started_ms),
            "brokerVersion": "409",
            "brokerVersionDesc": "V4_9_8",
            "dispatchBehindBytes": "0",
            "dledgerAlarms": _lines(alarm for alarm in status.alarms if not alarm.is_warning),
            "dledgerApplied": str(status.applied),
            "dledgerCommitted": str(status.committed),
            "dledgerLeader": status.leader or "",
            "dledgerLoopHolds": str(status.loop_holds),
            "dledgerProven": str(status.proven).lower(),
            "dledgerReady": str(status.ready).lower(),
            "dledgerRole": status.role,
            "dledgerTerm": str(status.term),
            "dledgerWarnings": _lines(alarm for alarm in status.alarms if alarm.is_warning),
            "refusedEntries": str(self.machine.state.refused_entries),
        }
        for service in self._services:
            figures.update(service.figures())
        return dict(sorted(figures.items()))


async def run_broker(
    config: BrokerConfig,
    surroundings: Surroundings,
    report: Report,
    start: StartReport | None = None,
    *,
    task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run one member until cancelled. Start it by `nursery.start`, which returns the `Broker`.

    Args:
        config: its settings.
        surroundings: its process and machine.
        report: told one line when it listens and at each change of role.
        start: told of the parts of the start, and reported when a leader is known.
        task_status: told the broker when it listens.

    Raises:
        Fatal: the log cannot be opened, or the member cannot go on.
        PortInUse, ListenFailed: clients cannot connect.
        AddressInUse, ConfigInvalid: scrapers cannot.
        TooFewDescriptors: the process may open too few files.
    """
    # Checked before the log is opened, which would fail later with too few files.
    serving = ServerLimits(
        max_connections=config.max_connections, spare_descriptors=SPARE_DESCRIPTORS
    ).within_descriptors()
    node_config = config.node
    authority = None
    if config.access is not None:
        speaks_tls = config.log_tls is not None
        authority = LogAuthority(config.access, speaks_tls=speaks_tls, asks=config.log_asks)
    queues = ConsumeQueues(config.directory / "consumequeue")
    machine = BrokerMachine(queues, REGISTRY, os.fspath(config.directory / "state"))
    watched = Watched()
    try:
        async with (
            _watchable(watched, config),
            open_node(node_config, machine, authority=authority) as node,
            trio.open_nursery() as nursery,
        ):
            watched.nodes.append(node)
            if start is not None:
                start.ended("log")
            await rebuild_queues(node, machine)
            if start is not None:
                start.ended("queues")
            tls = BrokerTls(config, node)
            credentials = None if config.access is None else config.access.admin
            client = RemotingClient(nursery, tls=tls.client, credentials=credentials)
            broker = Broker(config, node, machine, client, surroundings, serving, tls, authority)
            if config.metrics is not None:
                watched.runs(machine, broker.parts, broker.requests)
            await broker.run(report, task_status, start)
    finally:
        machine.close()


@asynccontextmanager
async def _watchable(watched: Watched, config: BrokerConfig) -> AsyncIterator[None]:
    """Answer scrapers and probes until the block ends, from before the log is read."""
    if config.metrics is None:
        yield
        return
    async with unwrapping_nursery() as nursery:
        await nursery.start(
            partial(serve_metrics, more=watched.metrics, waits=watched.waits),
            lambda: watched.nodes,
            str(config.metrics),
        )
        yield
        nursery.cancel_scope.cancel()


def _role_fields(change: RoleChange) -> dict[str, object]:
    return {
        "role": change.role.lower(),
        "term": change.term,
        "leader": change.leader,
        "ready": change.ready,
    }


def _lines(alarms: Iterable[MemberAlarm]) -> str:
    return "\n".join(alarm.text for alarm in alarms)


def _role_words(change: RoleChange) -> str:
    words = f"{change.role.lower()} of term {change.term}"
    if change.role.lower() == "leader":
        return words if change.ready else f"{words}, not ready yet"
    return f"{words}, leader {change.leader or 'unknown'}"


async def rebuild_queues(node: Node, machine: BrokerMachine) -> None:
    """Rebuild the damaged queues before clients are served. Raises DiskFailed."""
    if not machine.queues.to_mend.queues:
        return  # a rebuild begins with a state of its own, which takes a fifth of the start
    steps = RebuildSteps(node, machine)
    try:
        while steps.step():
            await trio.lowlevel.checkpoint()
    finally:
        steps.close()
