"""Opens a member of a group, and closes it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from dledger.config import NodeConfig
from dledger.node import Node
from dledger.restoring import open_and_restore
from dledger.state_machine import StateMachine
from dledger.store.disk import OsDisk
from dledger.unwrapping_nursery import unwrapping_nursery

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_node(config: NodeConfig, machine: StateMachine) -> AsyncIterator[Node]:
    """Open a member of a group: recover its log, listen, take part; stop at the block's end.

    The state machine is given its newest snapshot, if there is one, and then every committed
    entry behind that.

    Raises a Fatal error at once (ConfigInvalid, AddressInUse, DataFolderMismatch,
    DataFolderLocked, LogCorrupt, SnapshotLost, RestoreFailed, DiskFailed), or out of the block
    when the node cannot go on (DiskFailed, MachineFailed, InvariantBroken); the block is
    cancelled then.
    """
    opened = await trio.to_thread.run_sync(open_and_restore, OsDisk(), config, machine)
    store = opened.store
    if store.recovered.cut is not None:
        logger.warning("recovery cut the log's end: %s", store.recovered.cut)
    try:
        async with unwrapping_nursery() as nursery:
            node = Node(config, opened, machine)
            try:
                await node.start(nursery)
                yield node
            finally:
                node.stop()
                nursery.cancel_scope.cancel()
    finally:
        store.close()
