"""Opens a member of a group, and closes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dledger.config import NodeConfig
from dledger.node.host import HostConfig, open_host
from dledger.node.node import Node
from dledger.node.recovering import recover
from dledger.serving.platform import SYSTEM, Platform
from dledger.state_machine import StateMachine


@asynccontextmanager
async def open_node(
    config: NodeConfig, machine: StateMachine, platform: Platform = SYSTEM
) -> AsyncIterator[Node]:
    """Open a member of a group: recover its log, listen, take part; stop at the block's end.

    The state machine is given its newest snapshot, if there is one, and then every committed
    entry behind that.

    Raises a Fatal error at once (ConfigInvalid, AddressInUse, DataFolderMismatch,
    DataFolderLocked, LogCorrupt, SnapshotLost, RestoreFailed, DiskFailed), or out of the block
    when the node cannot go on (DiskFailed, MachineFailed, InvariantBroken); the block is
    cancelled then.

    The node has the process's address for itself; `open_host` shares one among many groups.
    `platform`: as in `open_host`.
    """
    opened = await recover(config, machine, platform)
    try:
        async with (
            open_host(
                HostConfig(address=str(config.address), max_groups=1, tls=config.tls), platform
            ) as host,
            host.run_node(config, opened, machine) as node,
        ):
            yield node
    finally:
        opened.store.close()
