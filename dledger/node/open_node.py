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
from dledger.trio_only import require_trio


@asynccontextmanager
async def open_node(
    config: NodeConfig, machine: StateMachine, platform: Platform = SYSTEM
) -> AsyncIterator[Node]:
    """Open a member of a group: recover its log, listen, take part; stop at the block's end.

    The state machine gets its newest snapshot, if there is one, and then every committed entry
    after it.

    Raises a Fatal error at once (ConfigInvalid, AddressInUse, DataFolderMismatch,
    DataFolderLocked, LogCorrupt, SnapshotLost, RestoreFailed, DiskFailed, MachineUnusable), or out
    of the block when the node cannot go on (DiskFailed, MachineFailed, InvariantBroken, NodeFailed,
    DiskUnresponsive); the block is cancelled then. Raises NotInTrio outside of trio.

    The node has the process's address for itself; `open_host` shares one among many groups.
    `platform`: as in `open_host`.
    """
    require_trio("open_node")
    opened = await recover(config, machine, platform)
    handed_over = False
    try:
        host_config = HostConfig(
            address=str(config.address), listen=config.listen, max_groups=1, tls=config.tls
        )
        async with open_host(host_config, platform) as host:
            handed_over = True  # run_node closes the folder
            async with host.run_node(config, opened, machine) as node:
                yield node
    finally:
        if not handed_over:
            opened.store.close()
