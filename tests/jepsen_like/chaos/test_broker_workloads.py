"""How long a run waits for the last messages of a workload with brokers."""

from __future__ import annotations

from broker.locks.state import LOCK_MS
from jepsen_like.chaos.brokers.workload import BROKER_WORKLOADS


def test_ordered_messages_may_wait_until_the_locks_of_a_consumer_that_left_have_expired() -> None:
    assert BROKER_WORKLOADS["ordered"].longest_wait_s > LOCK_MS / 1000
