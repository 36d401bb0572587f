"""What a command of the log costs does not grow with what the state has."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from bench.costs.loop_holds import Instructions
from bench.log_costs.dearest import DEAREST, dearest
from bench.log_costs.full_log import DUE_MS, FullLog, Sizes
from broker.features import REGISTRY
from broker.locks.state import LOCK_MS, QueueLocks
from broker.log.state_snapshot import captured
from broker.producers.members import PRODUCERS
from broker.sends.sends import SENDS
from broker.serving.parts import Shared
from broker.store.consume_queue_disk import OsConsumeQueueDisk
from broker.store.consume_queues import MAX_UNWRITTEN_QUEUES, WRITTEN_AT_ONCE
from broker.transactions.checks import Checks
from broker.transactions.ends import ENDS
from broker.transactions.state import TRANSACTIONS
from tests.broker.parts_alone import parts_alone

VERY_FEW, FEW, MANY = 12, 60, 240

# These look at each row that goes or that is waited for, in a tenth of a microsecond.
LOOKS_AT_ROWS: Final = {
    "DeleteGroup: with something in all topics",  # counts the popped messages of its queues
    "DeleteTopic: with something of all groups",
    "DeleteTopic: with the most queues and their files",  # forgets each of its queues
    "KeepLogFrom: before what is waited for",  # finds the first message of open transactions
    # What they have grows with the topics here, up to the most that one entry has.
    "CommitOffsets: of a new group",
    "LockQueues: the most queues of one request",
    "LockQueues: when all locks have expired",
    "LockQueues: gives up the most",
}


def steps(call: Callable[[], object]) -> int:
    """How many instructions of the interpreter a call takes."""
    counter = Instructions()
    gc.disable()  # what earlier tests left would be finalised, and counted
    try:
        with counter.counting():
            call()
    finally:
        gc.enable()
    return counter.count


class CountingDisk(OsConsumeQueueDisk):
    """Counts what makes, opens, writes and removes files."""

    calls = 0

    def open(self, path: str, to_write: bool) -> int:
        self.calls += 1
        return super().open(path, to_write)

    def write(self, descriptor: int, data: bytes, at: int) -> int:  # type: ignore[override]
        self.calls += 1
        return super().write(descriptor, data, at)

    def make_folder(self, path: str) -> None:
        self.calls += 1
        super().make_folder(path)

    def remove(self, path: str) -> None:  # type: ignore[override]
        self.calls += 1
        super().remove(path)

    def remove_folder(self, path: str) -> None:
        self.calls += 1
        super().remove_folder(path)


def filled(folder: Path, count: int) -> FullLog:
    full = FullLog(folder / str(count), Sizes.times(count))
    full.fill()
    return full


def test_each_kind_of_command_is_in_the_table_of_costs() -> None:
    assert DEAREST.keys() == {one.command for one in REGISTRY.commands()}


def test_what_an_entry_costs_does_not_grow_with_the_state(tmp_path: Path) -> None:
    costs: dict[int, dict[str, int]] = {FEW: {}, MANY: {}}
    for count, found in costs.items():
        full = filled(tmp_path, count)
        for name, make in dearest():
            if name in LOOKS_AT_ROWS or name.startswith("records: m"):
                continue  # those of many messages take long to count, and look at no state
            entry = make(full, 0)
            found[name] = steps(lambda full=full, entry=entry: full.machine.apply([entry]))  # type: ignore[misc]
        full.machine.close()
    assert len(costs[FEW]) >= len(DEAREST) - 4
    grown = {
        name: (cost, costs[MANY][name])
        for name, cost in costs[FEW].items()
        if costs[MANY][name] > 1.5 * cost + 200
    }
    assert grown == {}


def test_beginning_a_snapshot_does_not_grow_with_the_tables(tmp_path: Path) -> None:
    costs = []
    for count in (FEW, MANY):
        full = filled(tmp_path, count)
        next(full.machine.snapshot())  # writes the units of queues that are in memory only
        costs.append(steps(full.machine.snapshot))
        full.machine.close()
    assert costs[1] <= costs[0] + 200


def test_a_snapshot_has_nothing_of_what_is_folded_while_it_is_written(tmp_path: Path) -> None:
    full = filled(tmp_path, VERY_FEW)  # each entry is compared with the whole state, twice
    state = full.machine.state
    for name, make in sorted(dearest(), key=lambda case: case[0].startswith("Delete")):
        for number in range(2):
            expected, later = list(captured(state)), captured(state)
            full.machine.apply([make(full, number)])
            assert list(later) == expected, name
    full.machine.close()


def test_that_many_locks_expire_at_once_makes_no_entry_dearer() -> None:
    costs = []
    for count in (1000, 4000):
        locks = QueueLocks()
        locks.lock("g", "c", [("T", number) for number in range(count)], 1)
        costs.append(steps(lambda locks=locks: locks.lock("g", "d", [("T", 0)], 2 + LOCK_MS)))  # type: ignore[misc]
        assert len(locks.owners) == 1
    assert costs[1] <= costs[0] + 200


def test_no_entry_makes_or_removes_many_files(tmp_path: Path) -> None:
    disk = CountingDisk()
    full = FullLog(tmp_path, Sizes.times(FEW), disk)
    full.fill()
    for name, make in dearest():
        disk.calls = 0
        full.machine.apply([make(full, 0)])
        # A folder, a file and what is written to it, of the queues that are written at once; and
        # the queues that have a page full.
        assert disk.calls <= 4 * WRITTEN_AT_ONCE + 2 * MAX_UNWRITTEN_QUEUES, name
    full.machine.close()


@pytest.mark.parametrize("is_due", [False, True])
def test_a_look_for_transactions_that_are_due_does_not_grow_with_those_that_are_open(
    tmp_path: Path, *, is_due: bool
) -> None:
    costs = []
    for count in (600, 2400):
        sizes = replace(Sizes.times(8), transactions=count)
        full = FullLog(tmp_path / str(count), sizes)
        full.fill()
        stands_for: dict[Shared[Any], object] = {
            ENDS: SimpleNamespace(is_under_way=lambda _position: False),
            PRODUCERS: SimpleNamespace(members=lambda _group: {}),
            SENDS: SimpleNamespace(flush=lambda: None),
        }
        now_ms = DUE_MS - 1 + is_due
        parts = parts_alone(full.machine.state, made=stands_for, wall_clock_ms=lambda: now_ms)  # noqa: B023
        checks = Checks(parts)
        checks.begin_term()
        for _ in range(6):  # until all that is due is known
            checks.look()
        assert len(full.machine.state[TRANSACTIONS].halves) == count
        costs.append(steps(checks.look))
        full.machine.close()
    assert costs[1] <= 1.5 * costs[0]
