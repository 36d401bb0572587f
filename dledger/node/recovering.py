"""Opens the folder of a node beside the event loop."""

from __future__ import annotations

import contextlib
import logging

from dledger.config import NodeConfig
from dledger.machine_check import check_machine
from dledger.serving.platform import Platform
from dledger.snapshots.restoring import Opened, open_and_restore
from dledger.state_machine import StateMachine
from dledger.store.disk_room import PART_OF_DISK, DiskRoom
from dledger.store.folder import node_folder
from dledger.store.reserve import Reserve

logger = logging.getLogger(__name__)


def _room(config: NodeConfig, platform: Platform) -> DiskRoom:
    """The room of the member's disk, with a reserve; smaller than set if the disk is small."""
    folder = node_folder(str(config.data_dir), config.node_id)
    size = config.store.reserve_bytes
    there = next(path for path in (config.data_dir, *config.data_dir.parents) if path.exists())
    with contextlib.suppress(OSError):
        size = min(size, platform.disk_space(there).total // PART_OF_DISK)
    reserve = Reserve(platform.disk, folder, size)
    return DiskRoom(platform.disk, reserve, lambda: platform.disk_space(config.data_dir).free)


async def recover(config: NodeConfig, machine: StateMachine, platform: Platform) -> Opened:
    """The node's log and newest snapshot, as `open_and_restore` finds them.

    Raises MachineUnusable, and as that.
    """
    check_machine(machine)
    room = _room(config, platform)
    opened = await platform.run_blocking(
        open_and_restore, platform.disk, config, machine, room, platform.state_folder()
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
