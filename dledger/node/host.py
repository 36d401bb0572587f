"""Members of many groups in one process, behind one address."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType

import trio

from dledger.config import Address, NodeConfig, parse_address
from dledger.errors import ConfigInvalid, DiskUnresponsive
from dledger.network.connections import Connections
from dledger.network.host_connection import HostConnection
from dledger.network.tls import group_tls
from dledger.network.tls_config import TlsConfig
from dledger.node.node import Node
from dledger.node.recovering import recover
from dledger.serving.host_parts import HostParts
from dledger.serving.host_timer import HostTimer
from dledger.serving.listener import Listener
from dledger.serving.platform import SYSTEM, Platform
from dledger.snapshots.restoring import Opened
from dledger.state_machine import StateMachine
from dledger.trio_only import require_trio
from dledger.unwrapping_nursery import unwrapping_nursery

# Groups of one process. Their idle heartbeats then take about half a core, and those of all of them
# still fit into one frame.
MAX_GROUPS = 1_000

# A node that is left waits so long for its disk: much longer than any disk that works takes to sync
# what is dirty, and no longer than a supervisor waits before it kills the process.
CLOSE_WAIT_S = 30.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class HostConfig:
    """The settings of a process with members of many groups.

    `address`: host:port where others reach all of them; in the `peers` of each of its nodes this
    stands beside the node's name. `listen`: where it listens, if not there (see `NodeConfig`).
    `tls`: for all of them; its certificate names each node that runs here. Raises ConfigInvalid.
    """

    address: str
    listen: str | None = None
    max_groups: int = MAX_GROUPS
    tls: TlsConfig | None = None

    def __post_init__(self) -> None:
        parse_address("address", self.address)
        if self.listen is not None:
            parse_address("listen", self.listen)
        if not 1 <= self.max_groups <= MAX_GROUPS:
            raise ConfigInvalid("max_groups", f"{self.max_groups} is not within 1..{MAX_GROUPS}")

    @property
    def home(self) -> Address:
        """Where others reach it."""
        return parse_address("address", self.address)

    @property
    def listen_address(self) -> Address:
        """Where it listens."""
        return self.home if self.listen is None else parse_address("listen", self.listen)


class Host:
    """A running process's share in its groups. Made by `open_host`."""

    def __init__(
        self, config: HostConfig, nursery: trio.Nursery, platform: Platform = SYSTEM
    ) -> None:
        self.config = config
        self._tls = group_tls(config.tls)
        connections = Connections(nursery, config.home, self._tls, platform.network)
        self._parts = HostParts(
            connections,
            HostTimer(connections),
            platform.sync_threads(),
            {},
            self.reload_tls,
            platform,
        )
        self._listener = Listener(self._parts.ports, connections)
        self._nursery = nursery
        self._nodes: dict[str, Node | None] = {}  # by group; None while one is being opened

    @property
    def connections(self) -> Collection[HostConnection]:
        """Those that this process keeps to other processes."""
        return self._parts.connections.open

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The members that run here, by group."""
        running = {group: node for group, node in self._nodes.items() if node is not None}
        return MappingProxyType(running)

    def reload_tls(self) -> None:
        """Read the certificates again, for connections from now on; those that are open go on.

        Raises ConfigInvalid if they cannot be used; those of before then stay in use. Does nothing
        without TLS.
        """
        if self._tls is not None:
            self._tls.reload(node.config.node_id for node in self.nodes.values())

    @asynccontextmanager
    async def open_node(self, config: NodeConfig, machine: StateMachine) -> AsyncIterator[Node]:
        """Open a member of a group: recover its log, take part; stop at the block's end.

        As `dledger.open_node`, behind the address of this host. One member of each group may run
        here. What ends one of them (a broken disk, say) comes out of its own block: run each in a
        task that says what is to happen then.

        Raises ConfigInvalid if the node has another address, the group is here already, or there
        are `max_groups`; and as `dledger.open_node`.
        """
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
            raise ConfigInvalid("listen", "is for the host to say: all its nodes share its address")
        if config.tls not in (None, self.config.tls):
            raise ConfigInvalid("tls", "is for the host to say: all its nodes share its address")
        if config.group in self._nodes:
            raise ConfigInvalid("group", f"a member of {config.group} runs on this host already")
        if len(self._nodes) >= self.config.max_groups:
            raise ConfigInvalid("max_groups", f"{len(self._nodes)} groups are open on this host")
        self._nodes[config.group] = None

    @asynccontextmanager
    async def run_node(
        self, config: NodeConfig, opened: Opened, machine: StateMachine
    ) -> AsyncIterator[Node]:
        """Run a member whose folder is open; closes it in the end. For `open_node` alone.

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
        """Close a member's folder, beside the loop: the other groups go on meanwhile."""
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
        """Take no member any more; those that still end do so. For `open_host` alone."""
        self._parts.threads.shutdown()


@asynccontextmanager
async def open_host(config: HostConfig, platform: Platform = SYSTEM) -> AsyncIterator[Host]:
    """Listen for any number of groups; `host.open_node` opens their members.

    They share one listener, one connection to each other process, one timer and the threads that
    wait for the disk. `platform`: what the process runs on, if not on the system itself; for
    simulations.

    Raises AddressInUse, ConfigInvalid.
    """
    require_trio("open_host", "run the host with trio.run, in a thread of its own if need be")
    async with unwrapping_nursery() as nursery:
        host = Host(config, nursery, platform)
        try:
            await host.start()
            yield host
        finally:
            host.stop()
            nursery.cancel_scope.cancel()
