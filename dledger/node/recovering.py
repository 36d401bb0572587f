"""Opens the folder of a node beside the event loop."""

from __future__ import annotations

import logging

from dledger.config import NodeConfig
from dledger.serving.platform import Platform
from dledger.snapshots.restoring import Opened, open_and_restore
from dledger.state_machine import StateMachine

logger = logging.getLogger(__name__)


async def recover(config: NodeConfig, machine: StateMachine, platform: Platform) -> Opened:
    """The node's log and newest snapshot, as `open_and_restore` finds them; raises as that."""
    opened = await platform.run_blocking(open_and_restore, platform.disk, config, machine)
    if opened.store.recovered.cut is not None:
        logger.warning("recovery cut the log's end: %s", opened.store.recovered.cut)
    return opened
