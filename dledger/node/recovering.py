"""Opens the folder of a node beside the event loop."""

from __future__ import annotations

import logging

from dledger.config import NodeConfig
from dledger.machine_check import check_machine
from dledger.serving.platform import Platform
from dledger.snapshots.restoring import Opened, open_and_restore
from dledger.state_machine import StateMachine

logger = logging.getLogger(__name__)


async def recover(config: NodeConfig, machine: StateMachine, platform: Platform) -> Opened:
    """The node's log and newest snapshot, as `open_and_restore` finds them.

    Raises MachineUnusable, and as that.
    """
    check_machine(machine)
    opened = await platform.run_blocking(
        open_and_restore, platform.disk, config, machine, platform.state_folder()
    )
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
