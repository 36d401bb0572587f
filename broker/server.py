"""A broker, put together: a node of the log, the server for clients, and the registrations."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import trio

from broker.admin_processor import AdminProcessor
from broker.client_processor import ClientProcessor
from broker.config import BrokerConfig
from broker.confirmed_reads import ConfirmedReads
from broker.consumers import Consumers
from broker.guarded_log import GuardedLog
from broker.held_pulls import HeldPulls
from broker.limits import MAX_HOLD_SECONDS
from broker.log_changes import OffsetCommits
from broker.log_keeper import LogKeeper
from broker.machine import BrokerMachine
from broker.message_reader import MessageReader
from broker.offset_processor import OffsetProcessor
from broker.pull_processor import PullProcessor
from broker.rebuilding import rebuild_queues
from broker.registrar import Registrar
from broker.requests import Requests
from broker.retention import utc_hour
from broker.send_processor import SendProcessor
from broker.sends import Sends
from broker.store.consume_queues import MAX_OPEN_FILES, ConsumeQueues
from broker.store.disk_usage import used_percent as disk_used_percent
from broker.topic_changes import TopicChanges
from dledger import Node, NodeConfig, RoleChange, open_node
from remoting.net.client import RemotingClient
from remoting.net.server import ServerLimits, serve

# Files that a broker opens besides its clients' connections: those of consume queues, the log's
# segments and snapshots, and the connections to members and name servers, twice over.
SPARE_DESCRIPTORS: Final = 2 * MAX_OPEN_FILES

# How often waiting pulls are looked over: a hold of 15 s may last this much longer.
TICK_SECONDS = 0.2

# How often consumers are looked over for silence; RocketMQ's value.
EXPIRE_CLIENTS_SECONDS = 10.0


class Broker:
    """One running member. Made by `run_broker`.

    Attributes:
        node: its member of the log's group.
        machine: the folded log.
        requests: what answers clients.
        keeper: drops what is too old, or too much for the disk.
    """

    def __init__(
        self,
        config: BrokerConfig,
        node: Node,
        machine: BrokerMachine,
        client: RemotingClient,
        wall_clock_ms: Callable[[], int],
        process_id: int,
        hour_of: Callable[[int], int],
        used_percent: Callable[[Path], float],
    ) -> None:
        self.config = config
        self.node = node
        self.machine = machine
        self._log = GuardedLog(node)
        self._started_ms = wall_clock_ms()
        state, limits = machine.state, config.limits
        self._held = HeldPulls(limits.max_held_pulls)
        self._registrar = Registrar(
            client,
            config.nameservers,
            config.cluster,
            config.group,
            str(config.address),
            state,
            lambda: self.requests.led_term,
        )
        self._sends = Sends(state, self._log, config.address, limits, wall_clock_ms, process_id)
        self.keeper = LogKeeper(
            config.retention,
            config.directory,
            node,
            machine,
            lambda: self.requests.led_term is not None,
            wall_clock_ms,
            hour_of,
            used_percent,
        )
        self._reads = ConfirmedReads(node.read, limits.max_waiting_reads)
        self.requests = self._made_requests(wall_clock_ms)
        machine.on_applied = self.requests.applied

    def _made_requests(self, wall_clock_ms: Callable[[], int]) -> Requests:
        """What answers clients, over what this broker has made already."""
        config, log = self.config, self._log
        state, limits = self.machine.state, config.limits
        reader = MessageReader(state, self.machine.queues, log)
        consumers = Consumers()
        commits = OffsetCommits(log, state, limits.max_waiting_commits, wall_clock_ms)
        changes = TopicChanges(
            state,
            log,
            self._sends,
            limits,
            wall_clock_ms,
            self._registrar.announce,
            config.auto_create_topics,
        )
        keeper = self.keeper
        return Requests(
            config.group,
            log,
            self._sends,
            changes,
            commits,
            SendProcessor(
                state, self._sends, changes, reader, config.group, lambda: keeper.is_refusing
            ),
            PullProcessor(
                state,
                reader,
                consumers,
                commits,
                self._held,
                trio.current_time,
                MAX_HOLD_SECONDS,
                limits.max_offset_tables,
            ),
            ClientProcessor(state, consumers, log, changes, limits, trio.current_time),
            OffsetProcessor(state, reader, commits, limits, self._reads.add),
            AdminProcessor(
                state,
                changes,
                reader,
                consumers,
                config.group,
                self._settings(),
                self._figures,
            ),
            self._reads.add,
            self._registrar.announce,
        )

    async def run(
        self,
        serving: ServerLimits,
        report: Callable[[str], None],
        task_status: trio.TaskStatus["Broker"],
    ) -> None:
        """Serve until cancelled.

        Args:
            serving: what is taken of clients.
            report: see `run_broker`.
            task_status: told this broker when it listens.

        Raises:
            PortInUse, ListenFailed: clients cannot connect.
        """
        name = f"broker {self.config.node_id}"
        try:
            async with trio.open_nursery() as nursery:
                listen = self.config.listen
                start = partial(serve, limits=serving)
                address = await nursery.start(start, listen.host, listen.port, self.requests)
                report(f"{name} listening on {address}")
                nursery.start_soon(self._registrar.run)
                nursery.start_soon(self._reads.run)
                nursery.start_soon(self._tick)
                nursery.start_soon(self._expire_clients)
                nursery.start_soon(self.keeper.run)
                nursery.start_soon(self._follow_role, name, report)
                task_status.started(self)
        finally:
            self.machine.on_applied = None

    async def _follow_role(self, name: str, report: Callable[[str], None]) -> None:
        async for change in self.node.role_changes():
            self.requests.follow_role()
            report(f"{name} {_role_words(change)}")

    async def _tick(self) -> None:
        while True:
            await trio.sleep(TICK_SECONDS)
            self.requests.tick()

    async def _expire_clients(self) -> None:
        while True:
            await trio.sleep(EXPIRE_CLIENTS_SECONDS)
            self.requests.expire_clients()

    def _settings(self) -> dict[str, str]:
        config = self.config
        return {
            "autoCreateTopicEnable": str(config.auto_create_topics).lower(),
            "brokerClusterName": config.cluster,
            "brokerName": config.group,
            "dLegerGroup": config.group,
            "dLegerPeers": ";".join(f"{peer}-{at}" for peer, at in config.peers.items()),
            "dLegerSelfId": config.node_id,
            "deleteWhen": ";".join(f"{hour:02d}" for hour in sorted(config.retention.at_hours)),
            "diskMaxUsedSpaceRatio": str(config.retention.clean_percent),
            "enableDLegerCommitLog": "true",
            "fileReservedTime": str(config.retention.keep_hours),
            "listenPort": str(config.listen.port),
            "namesrvAddr": ";".join(config.nameservers),
            "storePathRootDir": str(config.directory),
        }

    def _figures(self) -> Mapping[str, str]:
        """What RocketMQ's tools show, and what this broker knows besides."""
        status, state = self.node.status(), self.machine.state
        return {
            "bootTimestamp": str(self._started_ms),
            "brokerVersion": "409",
            "brokerVersionDesc": "V4_9_8",
            "commitLogMaxOffset": str(state.log_end),
            "commitLogMinOffset": str(state.kept_position),
            "dispatchBehindBytes": "0",
            "dledgerApplied": str(status.applied),
            "dledgerCommitted": str(status.committed),
            "dledgerLeader": status.leader or "",
            "dledgerReady": str(status.ready).lower(),
            "dledgerRole": status.role,
            "dledgerTerm": str(status.term),
            "groups": str(len(state.groups)),
            "msgPutTotalTodayNow": str(state.messages),
            "pullHeld": str(len(self._held)),
            "pullThreadPoolQueueSize": str(len(self._held)),
            "refusedEntries": str(state.refused_entries),
            "sendThreadPoolQueueSize": str(self._sends.waiting_messages),
            "topics": str(len(state.topics)),
        }


async def run_broker(
    config: BrokerConfig,
    *,
    wall_clock_ms: Callable[[], int],
    process_id: int,
    report: Callable[[str], None],
    hour_of: Callable[[int], int] = utc_hour,
    used_percent: Callable[[Path], float] = disk_used_percent,
    task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run one member until cancelled. Start it by `nursery.start`, which returns the `Broker`.

    Args:
        config: its settings.
        wall_clock_ms: milliseconds since 1970; decides store times.
        process_id: makes generated message keys unique.
        report: told one line when it listens and at each change of role.
        hour_of: the local hour of the day at a time in milliseconds since 1970.
        used_percent: how much of the disk under a directory is used.
        task_status: told the broker when it listens.

    Raises:
        Fatal: the log cannot be opened, or the member cannot go on.
        PortInUse, ListenFailed: clients cannot connect.
        TooFewDescriptors: the process may open too few files.
    """
    # Before the log is opened: with too few files it could not go on, rather than not begin.
    serving = ServerLimits(spare_descriptors=SPARE_DESCRIPTORS).within_descriptors()
    queues = ConsumeQueues(config.directory / "consumequeue")
    machine = BrokerMachine(queues)
    node_config = NodeConfig(
        group=config.group,
        node_id=config.node_id,
        peers=config.peers,
        listen=None if config.listen_peers is None else str(config.listen_peers),
        data_dir=config.directory,
        store=config.store,
        snapshots=config.snapshots,
    )
    try:
        async with open_node(node_config, machine) as node, trio.open_nursery() as nursery:
            await rebuild_queues(node, machine)
            client = RemotingClient(nursery)
            broker = Broker(
                config, node, machine, client, wall_clock_ms, process_id, hour_of, used_percent
            )
            await broker.run(serving, report, task_status)
    finally:
        queues.close()


def _role_words(change: RoleChange) -> str:
    """A role for people: `leader of term 3`, `follower of term 3, leader n1`."""
    words = f"{change.role.lower()} of term {change.term}"
    if change.role.lower() == "leader":
        return words if change.ready else f"{words}, not ready yet"
    return f"{words}, leader {change.leader or 'unknown'}"
