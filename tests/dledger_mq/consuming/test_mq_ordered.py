"""An ordered consumer: one message of a queue after the other, under a lock of its leader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from dledger_mq import (
    ConsumeFrom,
    ConsumeResult,
    InvalidOptions,
    Listener,
    MessageModel,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
)
from dledger_mq.consuming.ordered_queues import LEAVE_S
from dledger_mq.consuming.own_locks import FRESH_S, LOST_S, RENEW_S
from remoting.bodies.consumer_group import decode_queue_lock, encode_consumer_list
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.dledger_mq.scripted_cluster import ScriptedBroker, ScriptedNames, scripted, start

pytestmark = pytest.mark.feature("F40")

GROUP = "readers"
KEY = (GROUP, "T", 0)
EPSILON_S = 5  # how late a task may notice something by the clock that jumps


class Cluster:
    def __init__(self) -> None:
        self.names = ScriptedNames()
        self.broker = ScriptedBroker()

    def put(self, count: int, queue_id: int = 0) -> None:
        for number in range(count):
            self.broker.put("T", queue_id, b"%d" % number)

    def consumer(
        self,
        listener: Listener | None,
        options: PushOptions | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
    ) -> PushConsumer:
        return PushConsumer(
            GROUP,
            "T",
            listener,
            nameservers=[self.names.address],
            ordered=True,
            model=model,
            consume_from=ConsumeFrom.FIRST,
            options=options,
        )

    def unlocked(self, queue_id: int = 0) -> bool:
        return (GROUP, "T", queue_id) not in self.broker.store.locks


@asynccontextmanager
async def running(queues: int = 1) -> AsyncIterator[Cluster]:
    cluster = Cluster()
    async with scripted(cluster.broker, names=cluster.names, group=GROUP, queues=queues):
        with trio.fail_after(2000):
            yield cluster


class Inbox:
    """A listener that remembers, and says how many of its calls with one queue ran at once."""

    def __init__(self, call_s: float = 0.0) -> None:
        self.bodies: dict[int, list[int]] = {}
        self.call_s = call_s
        self.most_at_once = 0
        self.cut_off = 0
        self._at_once: dict[int, int] = {}
        self._came = trio.Event()

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        queue_id = messages[0].queue.queue_id
        self._at_once[queue_id] = self._at_once.get(queue_id, 0) + 1
        self.most_at_once = max(self.most_at_once, self._at_once[queue_id])
        try:
            await trio.sleep(self.call_s)
        except trio.Cancelled:
            self.cut_off += 1
            raise
        finally:
            self._at_once[queue_id] -= 1
        self.bodies.setdefault(queue_id, []).extend(int(one.body) for one in messages)
        self._came.set()
        return ConsumeResult.SUCCESS

    async def wait(self, count: int) -> None:
        while sum(map(len, self.bodies.values())) < count:
            self._came = trio.Event()
            await self._came.wait()


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the clock jump until something has come about."""
    # What is waited for has no event of its own: it is the effect of several messages.
    while not condition():  # noqa: ASYNC110
        await trio.sleep(0.5)


def locked(cluster: Cluster, code: RequestCode) -> list[list[int]]:
    """The queues of T that each request of this code names."""
    bodies = [decode_queue_lock(one.body).queues for one in cluster.broker.asked(code)]
    named = [[queue.queue_id for queue in queues if queue.topic == "T"] for queues in bodies]
    return [queue_ids for queue_ids in named if queue_ids]


async def test_messages_of_a_queue_come_one_after_the_other_in_order(clock: MockClock) -> None:
    inbox = Inbox(0.01)
    async with running(queues=3) as cluster:
        for queue_id in range(3):
            cluster.put(40, queue_id)
        async with cluster.consumer(inbox) as consumer:
            await consumer.ready()
            await inbox.wait(120)
        assert inbox.bodies == {queue_id: list(range(40)) for queue_id in range(3)}
        assert inbox.most_at_once == 1
        assert cluster.broker.store.offsets[KEY] == 40
        assert not cluster.broker.store.locks


async def test_a_batch_is_one_call_and_the_next_one_waits_for_it(clock: MockClock) -> None:
    inbox = Inbox(0.01)
    async with running() as cluster:
        cluster.put(40)
        async with cluster.consumer(inbox, PushOptions(batch_size=7)):
            await inbox.wait(40)
        assert (inbox.bodies[0], inbox.most_at_once) == (list(range(40)), 1)


async def test_a_message_that_failed_is_the_next_one_again_after_the_pause(
    clock: MockClock,
) -> None:
    calls: list[tuple[float, int, int]] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        (message,) = messages
        calls.append((trio.current_time(), int(message.body), message.reconsume_times))
        if message.body == b"1" and message.reconsume_times < 2:
            if message.reconsume_times:
                raise RuntimeError("it failed")
            return ConsumeResult.RETRY
        return ConsumeResult.SUCCESS

    async with running() as cluster:
        cluster.put(3)
        async with cluster.consumer(listener, PushOptions(suspend_ms=2500)):
            await eventually(lambda: len(calls) == 2)
            cluster.put(1)  # what comes meanwhile does not overtake
            await eventually(lambda: len(calls) == 6)
        assert [body for _, body, _ in calls] == [0, 1, 1, 1, 2, 0]
        assert [times for _, _, times in calls] == [0, 0, 1, 2, 0, 0]
        assert calls[2][0] - calls[1][0] >= 2.5
        assert calls[3][0] - calls[2][0] >= 2.5
        assert not cluster.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_a_message_that_failed_too_often_goes_to_the_dead_letters_before_the_next_one_comes(
    clock: MockClock,
) -> None:
    calls: list[int] = []
    refusals = 2

    async with running() as cluster:

        def send_back(_connection: Connection, command: Command) -> Command:
            nonlocal refusals
            refusals -= 1
            assert calls[-1] == 0
            return command.reply(14 if refusals >= 0 else 0)

        async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            calls.append(int(messages[0].body))
            return ConsumeResult.RETRY if calls[-1] == 0 else ConsumeResult.SUCCESS

        cluster.broker.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = send_back
        cluster.put(3)
        async with cluster.consumer(listener, PushOptions(max_reconsume_times=2)):
            await eventually(lambda: len(calls) == 5)
        assert calls == [0, 0, 0, 1, 2]
        backs = cluster.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)
        assert {back.fields["delayLevel"] for back in backs} == {"-1"}
        assert cluster.broker.store.offsets[KEY] == 3


async def test_a_loop_gets_messages_in_order_and_again_what_it_gave_back(
    clock: MockClock,
) -> None:
    seen: list[int] = []
    async with running() as cluster:
        cluster.put(4)
        async with cluster.consumer(None) as consumer:
            async for message in consumer:
                seen.append(int(message.body))
                if seen == [0, 1]:
                    await consumer.give_back()
                if len(seen) == 5:
                    consumer.acknowledge()
                    break
        assert seen == [0, 1, 1, 2, 3]
        assert cluster.broker.store.offsets[KEY] == 4


async def test_a_queue_that_another_one_holds_is_read_when_it_is_given_up(
    clock: MockClock,
) -> None:
    inbox = Inbox()
    async with running() as cluster:
        cluster.put(2)
        cluster.broker.store.locks[KEY] = "another"
        async with cluster.consumer(inbox) as consumer:
            await trio.sleep(3)
            assert inbox.bodies == {}
            assert [queue for queue in consumer.queues() if queue.topic == "T"] == []
            cluster.broker.store.offsets[KEY] = 1
            del cluster.broker.store.locks[KEY]
            await consumer.ready()
            await inbox.wait(1)
        assert inbox.bodies == {0: [1]}  # from where the other one has committed


async def test_locks_are_renewed_and_given_back_at_the_end(clock: MockClock) -> None:
    async with running(queues=2) as cluster:
        async with cluster.consumer(Inbox()) as consumer:
            await consumer.ready()
            asked = len(locked(cluster, RequestCode.LOCK_BATCH_MQ))
            await trio.sleep(2 * RENEW_S + EPSILON_S)
            assert len(locked(cluster, RequestCode.LOCK_BATCH_MQ)) - asked == 2
            assert not cluster.unlocked(0)
        assert cluster.unlocked(0)
        assert locked(cluster, RequestCode.UNLOCK_BATCH_MQ) == [[0, 1]]


async def test_a_queue_is_given_up_when_the_call_has_ended_however_long_it_takes(
    clock: MockClock,
) -> None:
    inbox = Inbox(45)
    async with running(queues=2) as cluster:
        cluster.put(2, queue_id=0)
        cluster.put(2, queue_id=1)
        async with cluster.consumer(inbox) as consumer:
            await consumer.ready()
            began = trio.current_time()
            # Another member comes, and its share is the second of the queues.
            (self_id,) = cluster.broker.members[GROUP].values()
            members = encode_consumer_list([self_id, "~"])
            cluster.broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda _, command: (
                command.reply(body=members)
            )
            cluster.broker.notify(GROUP)
            await eventually(lambda: cluster.unlocked(1))
            assert 40 <= trio.current_time() - began <= 55
            assert cluster.broker.store.offsets[(GROUP, "T", 1)] == 1  # before it was unlocked
            assert not cluster.unlocked(0)
            assert inbox.most_at_once == 1


async def test_without_an_answer_calls_stop_after_30_seconds_and_one_that_runs_is_cut_off(
    clock: MockClock,
) -> None:
    inbox = Inbox(100)
    async with running() as cluster:
        cluster.put(3)
        async with cluster.consumer(inbox) as consumer:
            await consumer.ready()
            cluster.broker.answers[RequestCode.LOCK_BATCH_MQ] = lambda _, command: command.reply(
                ResponseCode.SERVICE_NOT_AVAILABLE
            )
            began = trio.current_time()
            await eventually(lambda: inbox.cut_off > 0)
            assert trio.current_time() - began <= LOST_S + EPSILON_S
            assert inbox.bodies == {}
            # It is asked for again, and what was cut off comes again.
            cluster.broker.answers[RequestCode.LOCK_BATCH_MQ] = cluster.broker.lock
            inbox.call_s = 0
            await inbox.wait(3)
        assert inbox.bodies == {0: [0, 1, 2]}
        assert inbox.cut_off == 1


async def test_a_lock_that_is_too_old_begins_no_call_until_it_is_renewed(clock: MockClock) -> None:
    inbox = Inbox()
    async with running() as cluster:
        async with cluster.consumer(inbox) as consumer:
            await consumer.ready()
            cluster.broker.answers[RequestCode.LOCK_BATCH_MQ] = lambda _, command: command.reply(
                ResponseCode.SERVICE_NOT_AVAILABLE
            )
            await trio.sleep(FRESH_S + EPSILON_S)
            cluster.put(3)
            await trio.sleep(EPSILON_S)
            assert inbox.bodies == {}
            cluster.broker.answers[RequestCode.LOCK_BATCH_MQ] = cluster.broker.lock
            await inbox.wait(3)
        assert inbox.bodies == {0: [0, 1, 2]}
        # It was never lost, so where to begin was not asked for again.
        asked = cluster.broker.asked(RequestCode.QUERY_CONSUMER_OFFSET)
        assert len([one for one in asked if one.fields["topic"] == "T"]) == 1


async def test_a_lock_that_became_anothers_ends_the_call_and_nothing_of_it_is_committed(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox(60)
    async with running() as cluster:
        cluster.put(3)
        async with cluster.consumer(inbox) as consumer:
            await consumer.ready()
            cluster.broker.store.locks[KEY] = "another"
            await eventually(lambda: inbox.cut_off > 0)
            await trio.sleep(EPSILON_S)
            assert consumer.queues() == [q for q in consumer.queues() if q.topic != "T"]
        assert cluster.broker.store.offsets.get(KEY, 0) == 0
        assert "may be another's" in caplog.text


async def test_a_call_that_cannot_be_cut_off_keeps_its_queue_from_being_asked_for_again(
    clock: MockClock,
) -> None:
    ended_at: list[float] = []

    async def listener(_messages: Sequence[ReceivedMessage]) -> None:
        with trio.CancelScope(shield=True):  # as a call in a thread
            await trio.sleep(RENEW_S + 15)
        ended_at.append(trio.current_time())

    async with running() as cluster:
        cluster.put(3)
        async with cluster.consumer(listener) as consumer:
            await consumer.ready()
            cluster.broker.store.locks[KEY] = "another"
            await trio.sleep(RENEW_S + EPSILON_S)
            asked = len(locked(cluster, RequestCode.LOCK_BATCH_MQ))
            await trio.sleep(EPSILON_S)
            assert len(locked(cluster, RequestCode.LOCK_BATCH_MQ)) == asked
            assert ended_at == []
            await eventually(lambda: bool(ended_at))
            await trio.sleep(1)
            assert len(locked(cluster, RequestCode.LOCK_BATCH_MQ)) > asked
        assert cluster.broker.store.offsets.get(KEY, 0) == 0  # another one's to commit


async def test_at_the_end_a_call_that_runs_ends_before_the_lock_does(clock: MockClock) -> None:
    order: list[str] = []

    async def listener(_messages: Sequence[ReceivedMessage]) -> None:
        try:
            await trio.sleep_forever()
        finally:
            order.append("call ended")

    async with running() as cluster:
        unlock = cluster.broker.answers[RequestCode.UNLOCK_BATCH_MQ]

        def noted(connection: Connection, command: Command) -> Command | None:
            order.append("unlocked")
            return unlock(connection, command)

        cluster.broker.answers[RequestCode.UNLOCK_BATCH_MQ] = noted
        cluster.put(1)
        async with cluster.consumer(listener, PushOptions(close_timeout_s=1)) as consumer:
            await consumer.ready()
            await trio.sleep(1)
        assert order[:2] == ["call ended", "unlocked"]
        assert cluster.unlocked()


async def test_a_consumer_that_leaves_while_no_broker_leads_unlocks_at_the_next_leader(
    clock: MockClock,
) -> None:
    async with running() as cluster:
        unlock = cluster.broker.answers[RequestCode.UNLOCK_BATCH_MQ]
        refused_at: list[float] = []

        def without_leader(connection: Connection, command: Command) -> Command | None:
            refused_at.append(trio.current_time())
            if refused_at[-1] < refused_at[0] + 2:
                return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark="not the leader")
            return unlock(connection, command)

        cluster.broker.answers[RequestCode.UNLOCK_BATCH_MQ] = without_leader
        async with cluster.consumer(Inbox()) as consumer:
            await consumer.ready()
        assert len(refused_at) > 2
        assert cluster.unlocked()


async def test_a_consumer_that_leaves_while_no_broker_leads_commits_before_it_unlocks(
    clock: MockClock,
) -> None:
    inbox = Inbox()
    async with running(queues=2) as cluster:
        answers = cluster.broker.answers
        commit, unlock = (
            answers[code]
            for code in (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNLOCK_BATCH_MQ)
        )
        leads_from = float("inf")
        order: list[str] = []

        def without_leader(connection: Connection, command: Command) -> Command | None:
            if trio.current_time() < leads_from:
                return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark="not the leader")
            order.append("committed")
            return commit(connection, command)

        def unlocked(connection: Connection, command: Command) -> Command | None:
            order.append("unlocked")
            return unlock(connection, command)

        answers[RequestCode.UPDATE_CONSUMER_OFFSET] = without_leader
        answers[RequestCode.UNLOCK_BATCH_MQ] = unlocked
        cluster.put(3)
        cluster.put(2, queue_id=1)
        async with cluster.consumer(inbox) as consumer:
            await consumer.ready()
            await inbox.wait(5)
            leads_from = trio.current_time() + 2
        offsets = cluster.broker.store.offsets
        assert (offsets[GROUP, "T", 0], offsets[GROUP, "T", 1]) == (3, 2)
        assert {*order} == {"committed", "unlocked"}
        assert order == sorted(order)


async def test_a_consumer_whose_last_commit_is_refused_for_good_leaves_at_once(
    clock: MockClock,
) -> None:
    inbox = Inbox()
    async with running() as cluster:
        refusal = ResponseCode.INVALID_PARAMETER
        cluster.broker.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda _, command: (
            command.reply(refusal, remark="there is no such queue")
        )
        cluster.put(1)
        async with cluster.consumer(inbox) as consumer:
            await consumer.ready()
            await inbox.wait(1)
            leaving_at = trio.current_time()
        assert trio.current_time() < leaving_at + 1
        assert cluster.unlocked()


async def test_a_consumer_that_leaves_asks_a_frozen_leader_once_and_then_the_next_one(
    clock: MockClock,
) -> None:
    async with running() as cluster, trio.open_nursery() as nursery:
        successor = ScriptedBroker(cluster.broker.store)
        await start(nursery, successor)

        def frozen(_connection: Connection, _command: Command) -> None:
            for topic in ("T", f"%RETRY%{GROUP}"):
                cluster.names.set_route(topic, successor.address, queues=1)

        cluster.broker.answers[RequestCode.UNLOCK_BATCH_MQ] = frozen
        async with cluster.consumer(Inbox()) as consumer:
            await consumer.ready()
        assert cluster.unlocked()
        nursery.cancel_scope.cancel()


async def test_a_consumer_leaves_in_seconds_though_no_broker_ever_takes_its_locks_back(
    clock: MockClock,
) -> None:
    async with running() as cluster:
        cluster.broker.answers[RequestCode.UNLOCK_BATCH_MQ] = lambda _, command: command.reply(
            ResponseCode.SERVICE_NOT_AVAILABLE, remark="not the leader"
        )
        async with cluster.consumer(Inbox()) as consumer:
            await consumer.ready()
            leaving_at = trio.current_time()
        assert trio.current_time() < leaving_at + LEAVE_S + EPSILON_S
        assert not cluster.unlocked()


async def test_a_broadcasting_consumer_keeps_the_order_without_locks(clock: MockClock) -> None:
    inbox = Inbox(0.01)
    async with running() as cluster:
        cluster.put(30)
        consumer = cluster.consumer(inbox, model=MessageModel.BROADCASTING)
        async with consumer:
            await inbox.wait(30)
        assert (inbox.bodies[0], inbox.most_at_once) == (list(range(30)), 1)
        assert not cluster.broker.asked(RequestCode.LOCK_BATCH_MQ)


@pytest.mark.parametrize("wrong", [9, 30_001])
def test_a_pause_out_of_range_is_told_in_one_line(wrong: int) -> None:
    with pytest.raises(InvalidOptions, match=f"suspend_ms is {wrong}: give 10 to 30000"):
        PushOptions(suspend_ms=wrong)
