"""Opens the folder of a node beside the event loop."""

from __future__ import annotations

import logging

import trio

from dledger.config import NodeConfig
from dledger.snapshots.restoring import Opened, open_and_restore
from dledger.state_machine import StateMachine
from dledger.store.disk import OsDisk

logger = logging.getLogger(__name__)


async def recover(config: NodeConfig, machine: StateMachine) -> Opened:
    """The node's log and newest snapshot, as `open_and_restore` finds them; raises as that."""
    opened = await trio.to_thread.run_sync(open_and_restore, OsDisk(), config, machine)
    if opened.store.recovered.cut is not None:
        logger.warning("recovery cut the log's end: %s", opened.store.recovered.cut)
    if (lost := opened.store.recovered.lost_through) > opened.store.last_index:
        logger.error(
            "entries up to %d were synced here and are gone; the log ends with %d. "
            "This member copies them from its leader before it votes and counts",
            lost,
            opened.store.last_index,
        )
    return opened
