"""Locks of ordered consumers are in the log: one holder, also through a change of leader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from broker.features import REGISTRY, empty_state
from broker.limits import BrokerLimits
from broker.locks.clock import LockClock
from broker.locks.commands import LockQueues
from broker.locks.state import LOCK_MS, LOCKS, QueueLocks
from broker.log.entry import encode_log_command
from broker.log.fold import fold
from broker.log.state_snapshot import captured, restored
from remoting.bodies.consumer_group import (
    MAX_LOCKED_QUEUES,
    QueueLock,
    decode_locked_queues,
    encode_queue_lock,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import ResponseCode
from tests.broker.broker_in_memory import broker_in_memory
from tests.broker.log.test_broker_fold import Log
from tests.broker.one_broker import Client, running_broker, served
from tests.broker.parts_alone import parts_alone
from tests.broker.serving.test_broker_waiting import FakeLog
from tests.broker.three_brokers import group_of_three

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(3)]


def owner(locks: QueueLocks, group: str = "g", queue_id: int = 0) -> str | None:
    found = locks.owners.get((group, "T", queue_id))
    return None if found is None else found.client_id


def test_a_lock_is_another_clients_only_after_a_minute_of_silence() -> None:
    locks, queues = QueueLocks(), [("T", 0)]
    for client_id, time_ms, expected in (
        ("c1", 1, "c1"),
        ("c2", 1 + LOCK_MS, "c1"),
        ("c1", 1 + LOCK_MS, "c1"),
        ("c2", 1 + 2 * LOCK_MS, "c1"),
        ("c2", 2 + 2 * LOCK_MS, "c2"),
        ("c1", 0, "c2"),  # time does not go back
    ):
        locks.lock("g", client_id, queues, time_ms)
        assert owner(locks) == expected
    assert locks.time_ms == 2 + 2 * LOCK_MS
    locks.lock("other", "c3", queues, 0)
    assert (owner(locks), owner(locks, "other")) == ("c2", "c3")


def test_only_the_holder_gives_a_lock_up() -> None:
    locks = QueueLocks()
    locks.lock("g", "c1", [("T", 0)], 1)
    locks.unlock("g", "c2", [("T", 0)], 2)
    assert owner(locks) == "c1"
    locks.unlock("g", "c1", [("T", 0), ("T", 1)], 3)
    assert owner(locks) is None


def test_locks_that_expired_do_not_stay_for_ever() -> None:
    locks = QueueLocks()
    for number in range(100):
        locks.lock("g", f"c{number}", [("T", number)], number)
    locks.lock("h", "c", [("T", 0)], 3 * LOCK_MS)
    assert list(locks.owners) == [("h", "T", 0)]


changes = st.builds(
    LockQueues,
    st.sampled_from(("g", "h")),
    st.sampled_from(("c1", "c2", "c3")),
    st.booleans(),
    st.integers(0, 4 * LOCK_MS),
    st.lists(st.tuples(st.just("T"), st.integers(0, 2)), max_size=3),
)


@given(st.lists(changes, max_size=30), st.data())
def test_nobody_gets_a_lock_that_another_one_has_had_for_less_than_a_minute(
    script: Sequence[LockQueues], data: st.DataObject
) -> None:
    log, state, now = Log(), empty_state(), 0
    held: dict[tuple[str, int], tuple[str, int]] = {}
    for change in script:
        fold(state, [log.append(encode_log_command(change))])
        now = max(now, change.time_ms)
        for _topic, queue_id in change.queues:
            key = (change.group, queue_id)
            holder, since = held.get(key, ("", -LOCK_MS - 1))
            if change.is_lock and (holder == change.client_id or now - since > LOCK_MS):
                held[key] = (change.client_id, now)
            elif not change.is_lock and holder == change.client_id:
                del held[key]
    for (group, queue_id), (client_id, since) in held.items():
        found = owner(state[LOCKS], group, queue_id)
        assert found == client_id or (found is None and now - since > LOCK_MS)
    assert len(state[LOCKS].owners) <= len(held)
    cut = data.draw(st.integers(0, len(log.entries)))
    again = empty_state()
    fold(again, log.entries[:cut])
    again = restored(captured(again), REGISTRY)
    fold(again, log.entries[cut:])
    assert again == state


def test_a_lock_expires_behind_a_snapshot_when_it_would_have_without_one() -> None:
    state = empty_state()
    state[LOCKS].lock("g", "c1", [("T", 0)], 2 * LOCK_MS)
    again = restored(captured(state), REGISTRY)
    assert again == state
    # A command of a leader whose clock is behind: it must not make the lock any older or younger.
    for locks in (state[LOCKS], again[LOCKS]):
        locks.lock("g", "c2", [("T", 1)], LOCK_MS)
    assert again == state


def test_a_group_whose_locks_are_over_does_not_consume_in_order() -> None:
    """Any request shows that, also if no lock request has come since."""
    state, times_s = empty_state(), [1.0, 1.0 + LOCK_MS / 1000, 1.001 + LOCK_MS / 1000]
    clock = LockClock(parts_alone(state, FakeLog(), clock=lambda: times_s.pop(0)))
    state[LOCKS].lock("g", "c1", [("T", 0)], clock.now_ms())
    assert [state[LOCKS].holds_any("g", clock.now_ms()) for _ in range(2)] == [True, False]


def test_the_time_of_locks_goes_on_while_no_client_locks_a_queue() -> None:
    with broker_in_memory() as broker:
        lock = encode_queue_lock(QueueLock("g", "gone", QUEUES))
        assert len(decode_locked_queues(broker.ask(41, lock).body)) == 3
        broker.log.term = 2
        broker.requests = broker.new_leader()
        broker.now_ms += LOCK_MS + 1000
        other = encode_queue_lock(QueueLock("g", "other", QUEUES))
        assert len(decode_locked_queues(broker.ask(41, other).body)) == 3


# --- brokers --------------------------------------------------------------------------------------


async def lock(client: Client, client_id: str, queues: list[MessageQueue]) -> list[int]:
    reply = await client.ask(41, encode_queue_lock(QueueLock("g", client_id, queues)))
    assert reply.code == 0, reply
    return [queue.queue_id for queue in decode_locked_queues(reply.body)]


@pytest.mark.feature("F40")
async def test_a_new_leader_knows_who_holds_a_queue(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as group:
        first, client = await group.leader()
        assert await lock(client, "c1", QUEUES[:2]) == [0, 1]
        group.stop(first)
        _second, client = await group.leader()
        assert await lock(client, "c2", QUEUES) == [2]
        assert await lock(client, "c1", QUEUES) == [0, 1]
        unlock = encode_queue_lock(QueueLock("g", "c1", QUEUES))
        assert (await client.ask(42, unlock)).code == 0
        assert await lock(client, "c2", QUEUES) == [0, 1, 2]


async def test_locks_survive_a_restart_from_a_snapshot(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        assert await lock(client, "c1", QUEUES[:1]) == [0]
        await broker.node.snapshot()
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        assert await lock(client, "c2", QUEUES) == [1, 2]


async def test_a_leader_without_its_quorum_locks_nothing(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as group:
        leader, client = await group.leader()
        assert await lock(client, "c1", QUEUES[:1]) == [0]
        for node_id in list(group.brokers):
            if node_id != leader:
                group.stop(node_id)
        replies: list[int] = []

        async def ask() -> None:
            body = encode_queue_lock(QueueLock("g", "c2", QUEUES))
            replies.append((await client.ask(41, body)).code)

        # It is refused, or left in doubt until a quorum is back; never told.
        with trio.move_on_after(4):
            await ask()
        assert 0 not in replies


async def test_locks_are_bounded(tmp_path: Path) -> None:
    async with served(tmp_path, limits=BrokerLimits(max_locks=2)) as client:
        assert await lock(client, "c1", QUEUES) == [0, 1]
        assert await lock(client, "c1", QUEUES[1:]) == [1]


@pytest.mark.parametrize(
    "asked",
    [
        QueueLock("bad name", "c", QUEUES),
        QueueLock("g", "c" * 256, QUEUES),
        QueueLock("g", "c", [MessageQueue("bad topic", "b", 0)]),
    ],
)
async def test_names_that_cannot_be_do_not_get_into_the_log(
    tmp_path: Path, asked: QueueLock
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        written = broker.node.status().last_index
        for code in (41, 42):
            reply = await client.ask(code, encode_queue_lock(asked))
            assert reply.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)
        assert broker.node.status().last_index == written


async def test_the_most_queues_of_a_request_are_locked_and_given_up_in_the_order_of_requests(
    tmp_path: Path,
) -> None:
    queues = [MessageQueue(f"T{number}", "broker-a", 0) for number in range(MAX_LOCKED_QUEUES)]
    body = encode_queue_lock(QueueLock("g", "c1", queues))
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        locks = broker.machine.state[LOCKS]
        for held in (queues, queues[-1:]):
            locked = await client.ask(41, body)
            assert decode_locked_queues(locked.body) == queues
            assert len(locks.owners) == MAX_LOCKED_QUEUES
            given_up = encode_queue_lock(QueueLock("g", "c1", held))
            assert (await client.ask(42, given_up)).code == 0
            assert len(locks.owners) == MAX_LOCKED_QUEUES - len(held)


def test_a_lock_that_is_renewed_keeps_none_that_are_over() -> None:
    locks = QueueLocks()
    for queue_id, time_ms in ((0, 0), (1, 1), (0, 50_000)):
        locks.lock("g", "c", [("T", queue_id)], time_ms)
    locks.unlock("g", "another", [], LOCK_MS + 2)
    assert locks.room(10) == 9
    assert locks.owners.keys() == {("g", "T", 0)}


def test_nothing_is_left_of_locks_that_were_given_back() -> None:
    locks = QueueLocks()
    queues = [("T", queue_id) for queue_id in range(4)]
    locks.lock("g", "c", queues, 0)
    locks.unlock("g", "c", queues, 0)
    assert len(locks._oldest_first) == len(locks.owners) == 0
