"""How long a run waits for the last messages of a workload with brokers."""

from __future__ import annotations

from broker.locks.state import LOCK_MS
from jepsen_like.chaos.brokers.clients import BROKER_WORKLOADS, DRAINED_TIMEOUT_S
from jepsen_like.chaos.run import FINAL_TIMEOUT_S


def test_ordered_messages_may_wait_until_the_locks_of_a_consumer_that_left_have_expired() -> None:
    assert BROKER_WORKLOADS["ordered"].longest_wait_s > LOCK_MS / 1000


def test_a_run_waits_longer_than_any_workload_does() -> None:
    longest_s = max(workload.longest_wait_s for workload in BROKER_WORKLOADS.values())
    assert longest_s + DRAINED_TIMEOUT_S < FINAL_TIMEOUT_S
