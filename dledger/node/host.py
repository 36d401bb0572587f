"""Opens the members of many groups in one process, behind one address; or one member alone."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import trio

from dledger.config import Address, NodeConfig, check_path, parse_address, parse_reached_address
from dledger.errors import ConfigInvalid, DiskUnresponsive, NodeClosing, OtherLoop
from dledger.home_loop import HomeLoop
from dledger.loop_watch import LoopWatch, watched_loop
from dledger.machine_check import check_machine
from dledger.network.connections import Connections
from dledger.network.host_connection import HostConnection
from dledger.network.tls import group_tls
from dledger.network.tls_config import TlsConfig
from dledger.node.node import Node
from dledger.number_check import check_numbers
from dledger.serving.host_parts import HostParts
from dledger.serving.host_timer import HostTimer
from dledger.serving.listener import Listener
from dledger.serving.platform import SYSTEM, Platform
from dledger.serving.users_file import UsersFile
from dledger.snapshots.restoring import Opened, open_and_restore
from dledger.state_machine import StateMachine
from dledger.store.disk_room import PART_OF_DISK, DiskRoom, Reserve
from dledger.store.folder import node_folder
from dledger.trio_only import require_trio
from dledger.unwrapping_nursery import unwrapping_nursery
from dledger.wire.proof import MEMBER, Shown
from dledger.wire.rights import Authority

# Groups of one process at most. The heartbeats of so many idle groups take about half a core, and
# still fit into one frame.
MAX_GROUPS = 1_000

# How long a closing node waits for its disk: much longer than any working disk takes to sync dirty
# files, and no longer than a supervisor waits before it kills the process.
CLOSE_WAIT_S = 30.0

logger = logging.getLogger(__name__)


def _room(config: NodeConfig, platform: Platform) -> DiskRoom:
    """Return the room of the member's disk. On a small disk its reserve is smaller than set."""
    folder = node_folder(str(config.data_dir), config.node_id)
    size = config.store.reserve_bytes
    with contextlib.suppress(OSError):  # opening the folder says what is wrong with it
        there = next(path for path in (config.data_dir, *config.data_dir.parents) if path.exists())
        size = min(size, platform.disk_space(there).total // PART_OF_DISK)
    reserve = Reserve(platform.disk, folder, size)
    return DiskRoom(platform.disk, reserve, lambda: platform.disk_space(config.data_dir).free)


async def recover(config: NodeConfig, machine: StateMachine, platform: Platform) -> Opened:
    """Open the node's log and restore its newest snapshot. Raises as `open_and_restore`."""
    check_machine(machine)
    room = _room(config, platform)
    opened = await platform.run_blocking(
        open_and_restore, platform.disk, config, machine, room, platform.state_folder()
    )
    if opened.store.recovered.cut is not None:
        cut = opened.store.recovered.cut
        logger.warning("recovery cut the log's end: %s", cut, extra={"event": "recovery"})
    if (lost := opened.store.recovered.lost_through) > opened.store.last_index:
        logger.error(
            "entries up to %d were synced here and are gone; the log ends with %d. "
            "This member copies them from its leader before it votes and counts",
            *(lost, opened.store.last_index),
            extra={"event": "recovery"},
        )
    return opened


@dataclass(frozen=True, kw_only=True, slots=True)
class HostConfig:
    """The settings of a process with members of many groups.

    `address`: host:port where peers reach all members; the `peers` of each of its nodes give this
    address for the node's name. `listen`: where it listens, if not there (see `NodeConfig`).
    `tls`: for all members; its certificate names each node that runs here. `users`: a file of the
    users of all members' port, see `NodeConfig`. Raises ConfigInvalid.
    """

    address: str
    listen: str | None = None
    max_groups: int = MAX_GROUPS
    tls: TlsConfig | None = None
    users: Path | None = None

    def __post_init__(self) -> None:
        parse_reached_address("address", self.address)
        if self.listen is not None:
            parse_address("listen", self.listen)
        if self.users is not None:
            check_path("users", self.users)
        check_numbers(self)
        if not 1 <= self.max_groups <= MAX_GROUPS:
            raise ConfigInvalid("max_groups", f"{self.max_groups} is not within 1..{MAX_GROUPS}")

    @property
    def home(self) -> Address:
        """The address at which peers and clients reach the process."""
        return parse_address("address", self.address)

    @property
    def listen_address(self) -> Address:
        """The address at which the process listens."""
        return self.home if self.listen is None else parse_address("listen", self.listen)


class Host:
    """The members of many groups in one process. Made by `open_host`."""

    def __init__(
        self,
        config: HostConfig,
        nursery: trio.Nursery,
        platform: Platform = SYSTEM,
        loop_watch: LoopWatch | None = None,
        authority: Authority | None = None,
    ) -> None:
        self.config = config
        self._home = HomeLoop(lambda: OtherLoop(f"the host at {config.address}"), NodeClosing)
        self._tls = group_tls(config.tls)
        self._users: UsersFile | None = None
        if config.users is not None:
            if authority is not None:
                raise ConfigInvalid("users", "there is an authority as well: leave one out")
            self._users = UsersFile(config.users, speaks_tls=self._tls is not None)
        self._authority = authority or self._users
        connections = Connections(
            nursery, config.home, self._tls, platform.network, self._shows_as_member
        )
        self._parts = HostParts(
            connections,
            HostTimer(connections),
            platform.sync_threads(),
            {},
            self.reload_tls,
            self.reload_users,
            platform,
            loop_watch,
        )
        self._listener = Listener(
            self._parts.ports, connections, config.max_groups, self._authority
        )
        self._nursery = nursery
        self._nodes: dict[str, Node | None] = {}  # by group; None while one is being opened

    @property
    def connections(self) -> Collection[HostConnection]:
        """The connections that this process dials to other processes."""
        return self._parts.connections.open

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The members that run here, by group."""
        running = {group: node for group, node in self._nodes.items() if node is not None}
        return MappingProxyType(running)

    def reload_tls(self) -> None:
        """Read the certificates again, for new connections; open ones go on.

        Raises ConfigInvalid if they cannot be used; the old ones then stay in use. Does nothing
        without TLS.
        """
        self._home.check()
        if self._tls is not None:
            self._tls.reload(node.config.node_id for node in self.nodes.values())

    def reload_users(self) -> None:
        """Read the file of users again. It counts at once, also on connections that are open.

        Raises ConfigInvalid if it cannot be used; the old users then stay. Does nothing without a
        file.
        """
        self._home.check()
        if self._users is not None:
            self._users.reload()

    def _shows_as_member(self) -> Shown | None:
        secrets = () if self._authority is None else self._authority.member_secrets
        return Shown(MEMBER, secrets[0]) if secrets else None

    @asynccontextmanager
    async def open_node(self, config: NodeConfig, machine: StateMachine) -> AsyncIterator[Node]:
        """Open a member of a group: recover its log, take part; stop at the block's end.

        As `dledger.open_node`, at the address of this host. One member of each group may run here.
        An error that ends a member (a broken disk, say) is raised out of its own block: run each
        member in a task that handles it.

        Raises ConfigInvalid if the node has another address, the group is here already, or there
        are `max_groups` already; and as `dledger.open_node`.
        """
        self._home.check()
        self._reserve(config)
        try:
            opened = await recover(config, machine, self._parts.platform)
            async with self.run_node(config, opened, machine) as node:
                yield node
        finally:
            del self._nodes[config.group]

    def _reserve(self, config: NodeConfig) -> None:
        if config.address != self.config.home:
            raise ConfigInvalid(
                f"peers.{config.node_id}",
                f"{config.address} is not the host's address {self.config.address}",
            )
        if config.listen not in (None, self.config.listen):
            raise ConfigInvalid(
                "listen", "set it in HostConfig: all nodes share the host's address"
            )
        if config.tls not in (None, self.config.tls):
            raise ConfigInvalid("tls", "set it in HostConfig: all nodes share the host's address")
        if config.users not in (None, self.config.users):
            raise ConfigInvalid("users", "set it in HostConfig: all nodes share the host's address")
        if config.group in self._nodes:
            raise ConfigInvalid("group", f"a member of {config.group} runs on this host already")
        if len(self._nodes) >= self.config.max_groups:
            raise ConfigInvalid("max_groups", f"{len(self._nodes)} groups are open on this host")
        self._nodes[config.group] = None

    @asynccontextmanager
    async def run_node(
        self, config: NodeConfig, opened: Opened, machine: StateMachine
    ) -> AsyncIterator[Node]:
        """Run a member whose folder is open, and close the folder. For `open_node` alone.

        Raises DiskUnresponsive at the block's end if the disk does not let it close the folder.
        """
        node: Node | None = None
        try:
            if self._tls is not None:
                self._tls.check_names((config.node_id,))
            async with unwrapping_nursery() as nursery:
                node = self._nodes[config.group] = Node(config, opened, machine, self._parts)
                try:
                    node.start(nursery)
                    yield node
                finally:
                    nursery.cancel_scope.cancel()
                    node.stop()
        finally:
            with trio.CancelScope(shield=True):
                await self._close(opened, node)

    async def _close(self, opened: Opened, node: Node | None) -> None:
        """Close a member's folder beside the loop, so that the other groups go on."""
        if node is None:
            await self._parts.platform.run_blocking(opened.store.close)
        elif not await node.closed(CLOSE_WAIT_S):
            error = DiskUnresponsive(str(node.config.data_dir), CLOSE_WAIT_S)
            logger.error("%s", error)
            raise error

    async def start(self) -> None:
        """Listen. For `open_host` alone. Raises AddressInUse, ConfigInvalid."""
        listeners = await self._listener.open(self.config.listen_address)
        self._nursery.start_soon(self._listener.serve, listeners)
        self._nursery.start_soon(self._parts.timer.run)

    def stop(self) -> None:
        """End idle sync threads; busy ones end after their sync. For `open_host` alone."""
        self._home.end()
        self._parts.threads.shutdown()


@asynccontextmanager
async def open_host(
    config: HostConfig, platform: Platform = SYSTEM, authority: Authority | None = None
) -> AsyncIterator[Host]:
    """Listen for any number of groups; `host.open_node` opens their members.

    They share one listener, one connection to each other process, one timer and the threads that
    run syncs. `platform`: the operating system, or a simulated one. `authority`: says who may do
    what at the port, in place of a file (`HostConfig.users`).

    Raises AddressInUse, ConfigInvalid.
    """
    require_trio("open_host")
    async with AsyncExitStack() as stack:
        watch = stack.enter_context(watched_loop()) if platform.watches_loop else None
        nursery = await stack.enter_async_context(unwrapping_nursery())
        host = Host(config, nursery, platform, watch, authority)
        try:
            await host.start()
            yield host
        finally:
            host.stop()
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_node(
    config: NodeConfig,
    machine: StateMachine,
    platform: Platform = SYSTEM,
    authority: Authority | None = None,
) -> AsyncIterator[Node]:
    """Open a member of a group: recover its log, listen, take part; stop at the block's end.

    The state machine gets its newest snapshot, if there is one, and then every committed entry
    after it.

    Raises a Fatal error at once (ConfigInvalid, AddressInUse, DataFolderMismatch,
    DataFolderLocked, LogCorrupt, SnapshotLost, RestoreFailed, DiskFailed, MachineUnusable), or out
    of the block when the node cannot go on (DiskFailed, MachineFailed, InvariantBroken, NodeFailed,
    DiskUnresponsive); the block is cancelled then. Raises NotInTrio outside of trio.

    The node has the process's address for itself; `open_host` shares one among many groups.
    `platform`, `authority`: as in `open_host`.
    """
    require_trio("open_node")
    opened = await recover(config, machine, platform)
    handed_over = False
    try:
        host_config = HostConfig(
            address=str(config.address),
            listen=config.listen,
            max_groups=1,
            tls=config.tls,
            users=config.users,
        )
        async with open_host(host_config, platform, authority) as host:
            handed_over = True  # run_node closes the folder
            async with host.run_node(config, opened, machine) as node:
                yield node
    finally:
        if not handed_over:
            opened.store.close()
