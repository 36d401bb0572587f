"""`async for message in consumer`: what is acknowledged, and when."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dledger_mq import (
    ClientClosed,
    ConsumeFrom,
    MessageModel,
    NotIterable,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
)
from remoting.wire.codes import RequestCode
from tests.dledger_mq.scripted_cluster import ScriptedBroker, ScriptedNames, start, until

GROUP = "readers"


class Cluster:
    def __init__(self) -> None:
        self.names = ScriptedNames()
        self.broker = ScriptedBroker()

    def put(self, *bodies: bytes, queue_id: int = 0) -> None:
        for body in bodies:
            self.broker.store.put("T", queue_id, body)

    def consumer(
        self, model: MessageModel = MessageModel.CLUSTERING, options: PushOptions | None = None
    ) -> PushConsumer:
        return PushConsumer(
            GROUP,
            "T",
            nameservers=[self.names.address],
            consume_from=ConsumeFrom.FIRST,
            model=model,
            options=options,
        )

    def committed(self, queue_id: int = 0) -> int | None:
        return self.broker.store.offsets.get((GROUP, "T", queue_id))


@asynccontextmanager
async def running() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    async with trio.open_nursery() as nursery:
        for peer in (cluster.names, cluster.broker):
            await start(nursery, peer)
        cluster.names.set_route("T", cluster.broker.address)
        cluster.names.set_route(f"%RETRY%{GROUP}", cluster.broker.address, queues=1)
        with trio.fail_after(100):
            yield cluster
        nursery.cancel_scope.cancel()


async def next_of(messages: AsyncIterator[ReceivedMessage]) -> bytes:
    return (await anext(messages)).body


async def test_a_message_is_acknowledged_when_the_next_is_asked_for() -> None:
    async with running() as cluster:
        cluster.put(b"0", b"1", b"2")
        async with cluster.consumer() as consumer:
            messages = aiter(consumer)
            assert [await next_of(messages) for _ in range(3)] == [b"0", b"1", b"2"]
            await consumer.commit()
            assert cluster.committed() == 2
        assert cluster.committed() == 2  # the third was never acknowledged


async def test_messages_of_a_queue_keep_their_order_and_queues_take_turns() -> None:
    async with running() as cluster:
        for queue_id in (0, 1):
            cluster.put(*(b"%d" % number for number in range(100)), queue_id=queue_id)
        seen: dict[int, list[int]] = {0: [], 1: []}
        async with cluster.consumer() as consumer:
            await consumer.ready()
            async for message in consumer:
                seen[message.queue.queue_id].append(int(message.body))
                if sum(map(len, seen.values())) == 200:
                    consumer.acknowledge()
                    break
        assert seen == {0: list(range(100)), 1: list(range(100))}
        assert (cluster.committed(0), cluster.committed(1)) == (100, 100)


@pytest.mark.feature("F32")
async def test_a_break_leaves_its_message_to_the_next_member() -> None:
    async with running() as cluster:
        cluster.put(b"0", b"1")
        began = trio.current_time()
        async with cluster.consumer() as consumer:
            async for message in consumer:
                if message.body == b"1":
                    break
        assert cluster.committed() == 1
        # The end of the block does not wait for a message that no loop will settle.
        assert trio.current_time() - began < PushOptions().close_timeout_s
        async with cluster.consumer() as consumer:
            assert await next_of(aiter(consumer)) == b"1"


async def test_an_error_in_the_block_leaves_its_message_to_the_next_member() -> None:
    async def consume(cluster: Cluster) -> None:
        async with cluster.consumer() as consumer:
            async for message in consumer:
                if message.body == b"1":
                    raise KeyError("the user's")

    async with running() as cluster:
        cluster.put(b"0", b"1", b"2")
        with pytest.raises(KeyError):
            await consume(cluster)
        assert cluster.committed() == 1
        assert not cluster.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_a_message_whose_body_raised_comes_again_in_the_next_loop() -> None:
    async with running() as cluster:
        cluster.put(b"bad", b"good")
        seen: list[tuple[bytes, int]] = []
        async with cluster.consumer() as consumer:

            async def loop() -> None:
                async for message in consumer:
                    seen.append((message.body, message.reconsume_times))
                    if message.body == b"bad" and not message.reconsume_times:
                        raise KeyError("the user's")
                    if len(seen) == 3:
                        consumer.acknowledge()
                        return

            with pytest.raises(KeyError):
                await loop()
            await loop()
        assert seen == [(b"bad", 0), (b"good", 0), (b"bad", 1)]
        assert cluster.committed() == 2
        assert cluster.broker.store.offsets[(GROUP, f"%RETRY%{GROUP}", 0)] == 1


async def test_a_message_that_is_given_back_comes_again_later() -> None:
    async with running() as cluster:
        cluster.put(b"0")
        async with cluster.consumer() as consumer:
            messages = aiter(consumer)
            assert await next_of(messages) == b"0"
            await consumer.give_back()
            await consumer.give_back()  # there is none in hand: it changes nothing
            message = await anext(messages)
            assert (message.body, message.reconsume_times) == (b"0", 1)
        assert len(cluster.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1


async def test_a_broadcasting_consumer_tries_here_again_what_is_given_back() -> None:
    async with running() as cluster:
        cluster.put(b"0")
        async with cluster.consumer(model=MessageModel.BROADCASTING) as consumer:
            for _ in range(2):
                assert await next_of(aiter(consumer)) == b"0"
                await consumer.give_back()
        assert not cluster.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_a_wait_that_is_cancelled_at_any_moment_loses_no_message() -> None:
    seen: list[bytes] = []
    cancelled = 0
    async with running() as cluster:
        async with cluster.consumer() as consumer:
            await consumer.ready()
            messages = aiter(consumer)

            async def cancel_after(checkpoints: int, scope: trio.CancelScope) -> None:
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            for checkpoints in range(100):
                cluster.broker.put("T", 0, b"%d" % checkpoints)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cancel_after, checkpoints, nursery.cancel_scope)
                    seen.append(await next_of(messages))
                cancelled += nursery.cancel_scope.cancelled_caught
            while len(seen) < 100:
                seen.append(await next_of(messages))
            consumer.acknowledge()
        assert cluster.committed() == 100
    assert seen == [b"%d" % number for number in range(100)]
    assert cancelled


async def test_a_message_given_back_while_no_broker_answers_is_not_forgotten_by_a_cancel() -> None:
    async with running() as cluster:
        cluster.put(b"0", b"1")
        async with cluster.consumer() as consumer:
            messages = aiter(consumer)
            assert await next_of(messages) == b"0"
            take_back = cluster.broker.answers.pop(RequestCode.CONSUMER_SEND_MSG_BACK)
            cluster.broker.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda _, c: c.reply(
                14, remark="no leader"
            )
            with trio.move_on_after(2) as scope:
                await consumer.give_back()
            assert scope.cancelled_caught
            cluster.broker.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = take_back
            assert await next_of(messages) == b"1"
            assert await next_of(messages) == b"0"
            consumer.acknowledge()
        assert cluster.committed() == 2


async def test_a_consumer_in_a_loop_holds_no_more_than_its_cache() -> None:
    async with running() as cluster:
        cluster.put(*(b"%d" % number for number in range(500)))
        async with cluster.consumer(options=PushOptions(max_cached_messages=64)) as consumer:
            messages = aiter(consumer)
            await anext(messages)
            await wait_all_tasks_blocked(0.05)
            # 64 fill the cache; the answer to one more pull may have been on its way.
            pulled = max(
                int(command.fields["queueOffset"])
                for command in cluster.broker.asked(RequestCode.PULL_MESSAGE)
            )
            assert pulled <= 64
            for _ in range(499):
                await anext(messages)


async def test_one_loop_at_a_time_gets_messages() -> None:
    async with running() as cluster:
        cluster.put(b"0")
        async with cluster.consumer() as consumer, trio.open_nursery() as nursery:
            first = aiter(consumer)
            assert await next_of(first) == b"0"

            async def wait_in_first() -> None:
                with pytest.raises(NotIterable, match="newer loop"):
                    await anext(first)

            nursery.start_soon(wait_in_first)
            await wait_all_tasks_blocked()
            with pytest.raises(NotIterable, match="another task"):
                await anext(first)
            cluster.broker.put("T", 0, b"1")
            second = aiter(consumer)
            assert await next_of(second) == b"1"


async def test_a_new_loop_gives_back_what_the_running_one_has() -> None:
    async with running() as cluster:
        cluster.put(b"0")
        async with cluster.consumer() as consumer:
            first = aiter(consumer)
            assert await next_of(first) == b"0"
            message = await anext(aiter(consumer))
            assert (message.body, message.reconsume_times) == (b"0", 1)
            with pytest.raises(NotIterable, match="newer loop"):
                await anext(first)


async def test_the_end_of_the_consumer_ends_a_loop_in_another_task() -> None:
    bodies = []

    async def loop(consumer: PushConsumer) -> None:
        async for message in consumer:
            bodies.append(message.body)

    async with running() as cluster:
        cluster.put(b"0")
        async with trio.open_nursery() as nursery, cluster.consumer() as consumer:
            nursery.start_soon(loop, consumer)
            await until(lambda: bodies == [b"0"])
            await wait_all_tasks_blocked()
        assert cluster.committed() == 1
        with pytest.raises(StopAsyncIteration):
            await anext(consumer._iteration)  # type: ignore[arg-type]


async def test_only_an_open_consumer_without_a_listener_is_iterated_over() -> None:
    async def listener(messages: object) -> None:
        pass

    closed = PushConsumer(GROUP, "T", nameservers=["127.0.0.1:1"])
    with pytest.raises(ClientClosed):
        aiter(closed)
    closed.acknowledge()
    await closed.give_back()
    listening = PushConsumer(GROUP, "T", listener, nameservers=["127.0.0.1:1"])
    with pytest.raises(NotIterable, match="without one") as caught:
        aiter(listening)
    assert "\n" not in str(caught.value)
