"""Producers and consumers behind plain calls, and in programs that run asyncio."""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
import trio

from dledger.asyncio_block import held_open
from dledger.loop_thread import LoopThread
from dledger_mq import (
    Client,
    ClientClosed,
    ClosedDuringCall,
    ConsumeFrom,
    ConsumeResult,
    InvalidListener,
    InvalidMessage,
    InvalidNameServers,
    Listener,
    Message,
    NoReply,
    NotIterable,
    OpenedTwice,
    OtherLoop,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    Rejected,
    SendResult,
    SomeFailed,
    WindowFull,
    blocking,
    for_asyncio,
    to_queue,
)
from remoting.wire.codes import RequestCode
from tests.dledger_mq.scripted_cluster import ScriptedBroker, ScriptedNames, start

GROUP = "readers"
ENOUGH_S = 30


class Cluster:
    """A scripted cluster whose loop runs in a thread of its own."""

    def __init__(self, loop: LoopThread[trio.Nursery]) -> None:
        self._loop = loop
        self.names = ScriptedNames()
        self.broker = ScriptedBroker()

    async def begin(self, nursery: trio.Nursery) -> None:
        for peer in (self.names, self.broker):
            await start(nursery, peer)
        self.names.set_route("T", self.broker.address)
        self.names.set_route(f"%RETRY%{GROUP}", self.broker.address, queues=1)

    def do(self, change: Callable[[], object]) -> None:
        """Change the cluster in its own thread."""

        async def call() -> object:
            return change()

        self._loop.submit(call).result(ENOUGH_S)

    def put(self, *bodies: bytes) -> None:
        for body in bodies:
            self.do(lambda body=body: self.broker.put("T", 0, body))  # type: ignore[misc]

    def stored(self) -> list[bytes]:
        queues = self.broker.store.queues
        return [bytes(record.body) for number in (0, 1) for record in queues.get(("T", number), [])]

    @property
    def committed(self) -> int | None:
        return self.broker.store.offsets.get((GROUP, "T", 0))

    def producer(self) -> Producer:
        return Producer("writers", nameservers=[self.names.address])

    def consumer(self, listener: Listener | None = None) -> PushConsumer:
        return PushConsumer(
            GROUP,
            "T",
            listener,
            nameservers=[self.names.address],
            consume_from=ConsumeFrom.FIRST,
        )

    def pull_consumer(self) -> PullConsumer:
        return PullConsumer(GROUP, nameservers=[self.names.address])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    loop: LoopThread[trio.Nursery] = LoopThread(trio.open_nursery, "scripted cluster")
    nursery = loop.open()
    made = Cluster(loop)
    loop.submit(lambda: made.begin(nursery)).result(ENOUGH_S)
    yield made
    made.do(nursery.cancel_scope.cancel)
    loop.close()


# --- blocking -------------------------------------------------------------------------------------


def test_a_producer_sends_by_plain_calls(cluster: Cluster) -> None:
    with blocking.open_producer(cluster.producer()) as producer:
        assert producer.send(Message("T", b"0")).queue_offset == 0
        results = producer.send_many([Message("T", b"%d" % number) for number in range(1, 10)])
        assert len(results) == 9
        producer.send_batch([Message("T", b"a"), Message("T", b"b")])
        future = producer.send_soon(Message("T", b"soon"))
        assert future.result(ENOUGH_S).queue.topic == "T"
        producer.send_oneway(Message("T", b"oneway"))
    assert sorted(cluster.stored())[:10] == [b"%d" % number for number in range(10)]
    with pytest.raises(ClientClosed):
        producer.send(Message("T", b"late"))


def test_an_error_is_that_of_the_same_call(cluster: Cluster) -> None:
    with (
        blocking.open_producer(cluster.producer()) as producer,
        pytest.raises(Rejected, match="know no topic"),
    ):
        producer.send(Message("Other", b"0"), timeout_s=0.2)


def test_the_end_of_the_block_waits_for_what_was_sent_soon(cluster: Cluster) -> None:
    with blocking.open_producer(cluster.producer()) as producer:
        futures = [producer.send_soon(Message("T", b"%d" % number)) for number in range(500)]
    assert all(future.done() for future in futures)
    assert len({future.result().message_id for future in futures}) == 500


def test_messages_sent_soon_are_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger_mq.blocking.MAX_SENT_SOON", 100)
    sends = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    cluster.do(lambda: cluster.broker.answers.update(dict.fromkeys(sends, lambda *_: None)))
    with blocking.open_producer(cluster.producer()) as producer:
        # None of them ends before the last is sent.
        futures = [producer.send_soon(Message("T", b"x"), timeout_s=1) for _ in range(100)]
        with pytest.raises(WindowFull, match="wait for answers"):
            producer.send_soon(Message("T", b"one too many"))
        for future in futures:
            assert future.exception(ENOUGH_S) is not None
        assert producer.send_soon(Message("T", b"again"), timeout_s=0.1).exception(9)


def test_a_message_that_is_changed_for_the_next_send_is_sent_as_it_was(cluster: Cluster) -> None:
    wanted = [str(number).encode() for number in range(100)]
    with blocking.open_producer(cluster.producer()) as producer:
        pairs, words = {"n": ""}, [""]
        message = Message("T", b"", properties=pairs, keys=words)
        body = bytearray(2)
        held = threading.Event()
        started = threading.Event()

        def hold() -> None:
            started.set()
            held.wait()

        producer._loop.soon(hold)
        started.wait()
        futures = []
        for number in wanted:
            message.body = number
            pairs["n"] = words[0] = number.decode()
            futures.append(producer.send_soon(message))
        message.body = b"question"
        asked = producer.ask_soon(message, timeout_s=1)
        message.body = b"changed"
        futures.append(producer.send_soon(Message("T", body)))  # type: ignore[arg-type]
        body[:] = b"xx"
        held.set()
        for future in futures:
            future.result()
        with pytest.raises(NoReply):
            asked.result()
    assert sorted(cluster.stored()) == sorted([*wanted, bytes(2), b"question"])
    for records in cluster.broker.store.queues.values():
        for record in records:
            found = record.property_map()
            if record.body in wanted:
                assert (found["n"], found["KEYS"]) == (record.body.decode(), found["n"])


@pytest.mark.parametrize("wrong", [Message("T", None), Message("T", 7), "text", None])  # type: ignore[arg-type]
def test_what_is_no_message_is_refused_as_in_trio(cluster: Cluster, wrong: Any) -> None:
    with blocking.open_producer(cluster.producer()) as producer:
        with pytest.raises(InvalidMessage):
            producer.send(wrong)
        with pytest.raises(InvalidMessage):
            producer.send_soon(wrong).result()
        with pytest.raises(SomeFailed) as caught:
            producer.send_many(iter([Message("T", b"a"), wrong, Message("T", b"b")]))
    kinds = [type(outcome) for outcome in caught.value.outcomes]
    assert kinds == [SendResult, InvalidMessage, SendResult]


def test_an_object_is_opened_once_and_not_with_a_client_of_another_loop(cluster: Cluster) -> None:
    producer = cluster.producer()
    with blocking.open_producer(producer):
        pass
    with pytest.raises(OpenedTwice), blocking.open_producer(producer):
        pytest.fail("it opened")

    async def share() -> None:
        async with Client([cluster.names.address]) as client:
            shared = Producer("w", client=client)
            with pytest.raises(OtherLoop, match="nameservers="), blocking.open_producer(shared):
                pytest.fail("it opened")

    trio.run(share)


def test_a_pull_consumer_pulls_by_plain_calls(cluster: Cluster) -> None:
    cluster.put(b"0", b"1")
    with blocking.open_pull_consumer(cluster.pull_consumer()) as consumer:
        first, _ = consumer.queues("T")
        assert [message.body for message in consumer.pull(first, 0).messages] == [b"0", b"1"]
        assert (consumer.first_offset(first), consumer.next_offset(first)) == (0, 2)
        assert consumer.committed(first) is None
        consumer.commit(first, 1)
        assert consumer.committed(first) == 1


def test_a_plain_loop_gets_messages_and_acknowledges_them(cluster: Cluster) -> None:
    cluster.put(b"0", b"1", b"2")
    with blocking.open_push_consumer(cluster.consumer()) as consumer:
        consumer.ready()
        assert len(consumer.queues()) == 3
        for message in consumer:
            if message.body == b"1":
                break
        consumer.commit()
        assert cluster.committed == 1
        consumer.acknowledge()
        for message in consumer:
            assert message.body == b"2"
            consumer.give_back()
            break
        again = next(iter(consumer))
        assert (again.body, again.reconsume_times) == (b"2", 1)
    assert cluster.committed == 3


def test_an_interrupted_wait_of_a_plain_loop_loses_no_message(cluster: Cluster) -> None:
    with blocking.open_push_consumer(cluster.consumer()) as consumer:
        messages = iter(consumer)
        coming = messages._iteration.coming()  # the wait that Ctrl-C ends is for this future
        cluster.put(b"0")
        coming.result(ENOUGH_S)
        consumer.acknowledge()  # of the message before: there was none
        consumer.give_back()
        message = next(messages)
        assert (message.body, message.reconsume_times) == (b"0", 0)
        consumer.acknowledge()
    assert cluster.committed == 1


def test_the_end_of_the_block_ends_a_loop_in_another_thread(cluster: Cluster) -> None:
    bodies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    with blocking.open_push_consumer(cluster.consumer()) as consumer:

        def loop() -> None:
            for message in consumer:
                bodies.put(message.body)

        thread = threading.Thread(target=loop)
        thread.start()
        cluster.put(b"0")
        assert bodies.get(timeout=ENOUGH_S) == b"0"
    thread.join(ENOUGH_S)
    assert not thread.is_alive()


def test_a_plain_function_listens_in_threads(cluster: Cluster) -> None:
    heard: queue.SimpleQueue[tuple[bytes, str]] = queue.SimpleQueue()
    together = threading.Barrier(2)

    def hear(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        together.wait(ENOUGH_S)  # two calls must run at once
        heard.put((messages[0].body, threading.current_thread().name))
        return ConsumeResult.SUCCESS

    cluster.put(b"0", b"1")
    with blocking.open_push_consumer(cluster.consumer(blocking.listener(hear))) as consumer:
        assert {heard.get(timeout=ENOUGH_S)[0] for _ in range(2)} == {b"0", b"1"}
        with pytest.raises(NotIterable):
            iter(consumer)
    assert cluster.committed == 2


async def coroutine_function(messages: Sequence[ReceivedMessage]) -> None:
    pass


@pytest.mark.parametrize("wrong", [coroutine_function, "a text"])
def test_what_is_no_plain_function_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidListener):
        blocking.listener(wrong)  # type: ignore[arg-type]


def test_a_call_that_the_end_interrupts_says_so(cluster: Cluster) -> None:
    cluster.do(lambda: cluster.broker.answers.update({RequestCode.GET_MAX_OFFSET: lambda *_: None}))
    failures: Future[BaseException] = Future()
    with blocking.open_pull_consumer(cluster.pull_consumer()) as consumer:
        first, _ = consumer.queues("T")
        asked = threading.Event()

        def ask() -> None:
            asked.set()
            try:
                consumer.next_offset(first)
            except Exception as error:
                failures.set_result(error)

        thread = threading.Thread(target=ask)
        thread.start()
        asked.wait(ENOUGH_S)
    thread.join(ENOUGH_S)
    assert isinstance(failures.result(0), ClosedDuringCall | ClientClosed)


# --- asyncio --------------------------------------------------------------------------------------


def test_tasks_of_asyncio_send(cluster: Cluster) -> None:
    async def main() -> None:
        async with for_asyncio.open_producer(cluster.producer()) as producer:
            sends = [producer.send(Message("T", b"%d" % number)) for number in range(200)]
            assert len({one.message_id for one in await asyncio.gather(*sends)}) == 200
            assert len(await producer.send_many([Message("T", b"many")] * 3)) == 3
            await producer.send_batch([Message("T", b"batch")] * 2)
            await producer.send_oneway(Message("T", b"oneway"))
            with pytest.raises(Rejected):
                await producer.send(Message("Other", b"0"), timeout_s=0.2)

    asyncio.run(main())
    assert len(set(cluster.stored())) >= 202


def test_an_asyncio_loop_gets_messages_and_a_timed_out_wait_loses_none(cluster: Cluster) -> None:
    async def main() -> None:
        async with for_asyncio.open_push_consumer(cluster.consumer()) as consumer:
            await consumer.ready()
            messages = aiter(consumer)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(messages), 0.05)
            await asyncio.to_thread(cluster.put, b"0", b"1", b"2")
            await consumer.acknowledge()  # the message that is on its way is not meant
            assert (await anext(messages)).body == b"0"
            assert (await anext(messages)).body == b"1"
            await consumer.commit()
            assert cluster.committed == 1
            await consumer.give_back()
            async for message in consumer:
                if message.reconsume_times:
                    assert message.body == b"1"
                    await consumer.acknowledge()
                    break
            assert len(await consumer.queues()) == 3

    asyncio.run(main())
    assert cluster.committed == 3


def test_one_task_of_asyncio_waits_at_a_time(cluster: Cluster) -> None:
    async def main() -> None:
        async with for_asyncio.open_push_consumer(cluster.consumer()) as consumer:
            messages = aiter(consumer)
            first = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0)
            with pytest.raises(NotIterable):
                await anext(messages)
            await consumer.queues()  # begins after the wait has begun
        with pytest.raises(StopAsyncIteration):
            await first

    asyncio.run(main())


def test_a_coroutine_function_of_asyncio_listens_in_its_loop(cluster: Cluster) -> None:
    async def main() -> None:
        done = asyncio.Event()
        loops = []

        async def hear(messages: Sequence[ReceivedMessage]) -> None:
            await asyncio.sleep(0)
            loops.append(asyncio.get_running_loop())
            if not messages[0].reconsume_times:
                raise KeyError("the user's: the message comes again")
            done.set()

        listener = for_asyncio.listener(hear)
        async with for_asyncio.open_push_consumer(cluster.consumer(listener)):
            await asyncio.to_thread(cluster.put, b"0")
            await asyncio.wait_for(done.wait(), ENOUGH_S)
        assert set(loops) == {asyncio.get_running_loop()}

    asyncio.run(main())
    assert cluster.committed == 1
    with pytest.raises(InvalidListener):
        for_asyncio.listener(print)  # type: ignore[arg-type]


def test_asyncio_pulls(cluster: Cluster) -> None:
    cluster.put(b"0")

    async def main() -> None:
        async with for_asyncio.open_pull_consumer(cluster.pull_consumer()) as consumer:
            first, _ = await consumer.queues("T")
            assert [one.body for one in (await consumer.pull(first, 0)).messages] == [b"0"]
            assert await consumer.first_offset(first) == 0
            assert await consumer.next_offset(first) == 1
            await consumer.commit(first, 1)
            assert await consumer.committed(first) == 1

    asyncio.run(main())


# --- what carries a block of another thread into asyncio ------------------------------------------


def test_a_task_cancelled_while_a_block_opens_waits_and_closes_it() -> None:
    events: list[str] = []
    opening: Future[str] = Future()
    ended: Future[None] = Future()

    def begin() -> Future[str]:
        events.append("begun")
        return opening

    def end() -> None:
        events.append("ended")
        ended.set_result(None)

    async def use() -> None:
        async with held_open(begin, end, ended):
            pytest.fail("it began")

    async def main() -> None:
        task = asyncio.ensure_future(use())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        opening.set_result("opened")
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert events == ["begun", "ended"]


def test_what_ends_by_itself_cancels_its_block_and_gives_the_reason() -> None:
    opening: Future[str] = Future()
    ended: Future[None] = Future()
    opening.set_result("opened")

    async def main() -> None:
        async with held_open(lambda: opening, lambda: None, ended) as opened:
            assert opened == "opened"
            asyncio.get_running_loop().call_soon(ended.set_exception, KeyError("why"))
            await asyncio.sleep(ENOUGH_S)

    with pytest.raises(KeyError, match="why"):
        asyncio.run(main())


def test_a_name_server_is_needed_here_as_in_trio() -> None:
    with pytest.raises(InvalidNameServers):
        Producer("w")


def test_a_selector_is_called_in_the_producers_thread(cluster: Cluster) -> None:
    with blocking.open_producer(cluster.producer()) as producer:
        first = producer.send(Message("T", b"0")).queue
        assert producer.send(Message("T", b"1"), selector=to_queue(first)).queue == first
