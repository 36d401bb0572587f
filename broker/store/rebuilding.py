"""Reads the log once more where consume queue files are not there any more."""

import logging

import trio

from broker.machine import BrokerMachine
from broker.store.queue_rebuild import QueueRebuild
from dledger import Node

_log = logging.getLogger(__name__)

# Read between two checkpoints: about a millisecond of the event loop.
_READ_BYTES = 256 * 1024


async def rebuild_queues(node: Node, machine: BrokerMachine) -> None:
    """Make the damaged queues again, before clients are served. Raises DiskFailed."""
    if not machine.queues.damaged:
        return
    status = node.status()
    index, last = status.first_index, status.applied
    _log.warning(
        "files of %d consume queues are damaged or missing: making them again from entries %d..%d",
        len(machine.queues.damaged),
        index,
        last,
    )
    rebuild = QueueRebuild(
        machine.queues, machine.restored_ends, index == 0, machine.state.registry
    )
    while index <= last:
        entries = node.entries(index, _READ_BYTES)
        # What is applied from now on goes into the queues by itself, or deletes them.
        rebuild.take([entry for entry in entries if entry.index <= last])
        index = entries[-1].index + 1
        await trio.lowlevel.checkpoint()
    rebuild.finish()
