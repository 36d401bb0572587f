"""Reads the log once more where consume queue files are not there any more."""

import trio

from broker.machine import BrokerMachine
from broker.store.rebuild_steps import RebuildSteps
from dledger import Node


async def rebuild_queues(node: Node, machine: BrokerMachine) -> None:
    """Make the damaged queues again, before clients are served. Raises DiskFailed."""
    steps = RebuildSteps(node, machine)
    try:
        while steps.step():
            await trio.lowlevel.checkpoint()
    finally:
        steps.close()
