"""Ready-made state machines: replicated dictionaries, counters, queues and locks.

prices, visits = ReplicatedDict(), ReplicatedCounter()
machine = Objects(prices=prices, visits=visits)
async with dledger.open_node(config, dledger.WithSessions(machine)) as node:
    async with node.session() as session:
        await prices.through(session).set("tea", 3)
"""

from dledger.machines.command import AppendNotAwaitable, CommandRefused
from dledger.machines.lock_calls import LockCalls, LockLost, LockNotAcquired
from dledger.machines.replicated import Objects, Replicated
from dledger.machines.replicated_counter import CounterCalls, ReplicatedCounter
from dledger.machines.replicated_dict import DictCalls, ReplicatedDict
from dledger.machines.replicated_lock import Holding, ReplicatedLocks
from dledger.machines.replicated_queue import QueueCalls, ReplicatedQueue

__all__ = [
    "AppendNotAwaitable",
    "CommandRefused",
    "CounterCalls",
    "DictCalls",
    "Holding",
    "LockCalls",
    "LockLost",
    "LockNotAcquired",
    "Objects",
    "QueueCalls",
    "Replicated",
    "ReplicatedCounter",
    "ReplicatedDict",
    "ReplicatedLocks",
    "ReplicatedQueue",
]
