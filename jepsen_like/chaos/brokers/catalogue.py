"""The workloads with brokers by the names that `--workload` takes."""

from __future__ import annotations

from jepsen_like.chaos.brokers.everything import Everything
from jepsen_like.chaos.brokers.queue_locks import QueueLocks
from jepsen_like.chaos.brokers.workload import (
    Broadcast,
    Delayed,
    Messages,
    Offsets,
    Ordered,
    Popped,
    Transactional,
)

BROKER_WORKLOADS: dict[str, type[Messages]] = {
    "messages": Messages,
    "broadcast": Broadcast,
    "offset": Offsets,
    "queue-lock": QueueLocks,
    "ordered": Ordered,
    "delay": Delayed,
    "transaction": Transactional,
    "pop": Popped,
    "everything": Everything,
}
