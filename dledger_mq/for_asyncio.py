"""Producers and consumers for programs that run asyncio.

    async with for_asyncio.open_producer(Producer("writers", nameservers=...)) as producer:
        result = await producer.send(Message("Greetings", b"hello"))

    consumer = PushConsumer("readers", "Greetings", nameservers=NAMESERVERS)
    async with for_asyncio.open_push_consumer(consumer) as messages:
        async for message in messages:
            print(message.body)

A bridge over `dledger_mq.blocking`: a trio loop runs in a thread beside asyncio's. Cancelling a
call gives up the wait only. Errors are those of the same calls in `dledger_mq`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import trio

from dledger.asyncio_block import entered_in_thread
from dledger_mq import blocking
from dledger_mq.errors import NotIterable, TransactionRefused
from dledger_mq.listener import Listener, check_listener
from dledger_mq.message import Message
from dledger_mq.pop_consumer import PopConsumer
from dledger_mq.producer import Producer
from dledger_mq.pull_consumer import PullConsumer
from dledger_mq.pulling import PULL_BATCH, PullResult
from dledger_mq.push_consumer import PushConsumer
from dledger_mq.received_message import ReceivedMessage
from dledger_mq.selectors import QueueSelector
from dledger_mq.send_result import SendResult
from dledger_mq.subscription import ALL, Sql
from dledger_mq.transaction import TransactionCheck
from dledger_mq.transaction_state import TransactionState
from remoting.bodies.message_queue import MessageQueue

Given = TypeVar("Given")
Told = TypeVar("Told")


class AsyncioProducer:
    """A running producer. Made by `open_producer`."""

    def __init__(self, producer: blocking.BlockingProducer) -> None:
        self._producer = producer

    async def send(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """As Producer.send."""
        return await asyncio.wrap_future(
            self._producer.begin_send(message, selector, timeout_seconds)
        )

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> list[SendResult]:
        """As Producer.send_many; `messages` are taken in the producer's thread."""
        return await asyncio.to_thread(
            self._producer.send_many, messages, selector=selector, timeout_seconds=timeout_seconds
        )

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """As Producer.send_batch."""
        return await asyncio.to_thread(
            self._producer.send_batch, messages, selector=selector, timeout_seconds=timeout_seconds
        )

    async def send_oneway(self, message: Message, *, selector: QueueSelector | None = None) -> None:
        """As Producer.send_oneway."""
        await asyncio.to_thread(self._producer.send_oneway, message, selector=selector)

    async def recall(self, result: SendResult) -> bool:
        """As Producer.recall."""
        return await asyncio.to_thread(self._producer.recall, result)

    async def ask(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> ReceivedMessage:
        """As Producer.ask."""
        return await asyncio.to_thread(
            self._producer.ask, message, selector=selector, timeout_seconds=timeout_seconds
        )

    async def reply(self, asked: ReceivedMessage, body: bytes) -> None:
        """As Producer.reply."""
        await asyncio.to_thread(self._producer.reply, asked, body)

    @asynccontextmanager
    async def transaction(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> AsyncIterator[AsyncioTransaction]:
        """As Producer.transaction."""
        transaction = await self.begin_transaction(
            message, selector=selector, timeout_seconds=timeout_seconds
        )
        try:
            yield transaction
        except Exception:
            if transaction.is_undecided:
                with suppress(TransactionRefused):
                    await transaction.roll_back()
            raise
        if transaction.is_undecided:
            await transaction.commit()

    async def begin_transaction(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> AsyncioTransaction:
        """As Producer.begin_transaction."""
        transaction = await asyncio.to_thread(
            self._producer.begin_transaction,
            message,
            selector=selector,
            timeout_seconds=timeout_seconds,
        )
        return AsyncioTransaction(transaction)


class AsyncioTransaction:
    """A message that waits for its transaction. Made by `AsyncioProducer.transaction`."""

    def __init__(self, transaction: blocking.BlockingTransaction) -> None:
        self._transaction = transaction

    @property
    def id(self) -> str:
        """As Transaction.id."""
        return self._transaction.id

    @property
    def result(self) -> SendResult:
        """As Transaction.result."""
        return self._transaction.result

    @property
    def state(self) -> TransactionState:
        """As Transaction.state."""
        return self._transaction.state

    @property
    def is_undecided(self) -> bool:
        """As Transaction.is_undecided."""
        return self._transaction.is_undecided

    async def commit(self) -> bool:
        """As Transaction.commit."""
        return await asyncio.to_thread(self._transaction.commit)

    async def roll_back(self) -> bool:
        """As Transaction.roll_back."""
        return await asyncio.to_thread(self._transaction.roll_back)

    def leave_open(self) -> None:
        """As Transaction.leave_open."""
        self._transaction.leave_open()


class AsyncioPullConsumer:
    """A running pull consumer. Made by `open_pull_consumer`."""

    def __init__(self, consumer: blocking.BlockingPullConsumer) -> None:
        self._consumer = consumer

    async def queues(self, topic: str) -> list[MessageQueue]:
        """As PullConsumer.queues."""
        return await asyncio.to_thread(self._consumer.queues, topic)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: str | Sql = ALL,
        most: int = PULL_BATCH,
        hold_seconds: float = 0.0,
    ) -> PullResult:
        """As PullConsumer.pull."""
        return await asyncio.to_thread(
            self._consumer.pull, queue, offset, tags=tags, most=most, hold_seconds=hold_seconds
        )

    async def first_offset(self, queue: MessageQueue) -> int:
        """As PullConsumer.first_offset."""
        return await asyncio.to_thread(self._consumer.first_offset, queue)

    async def next_offset(self, queue: MessageQueue) -> int:
        """As PullConsumer.next_offset."""
        return await asyncio.to_thread(self._consumer.next_offset, queue)

    async def offset_at(self, queue: MessageQueue, timestamp_milliseconds: int) -> int:
        """As PullConsumer.offset_at."""
        return await asyncio.to_thread(self._consumer.offset_at, queue, timestamp_milliseconds)

    async def committed(self, queue: MessageQueue) -> int | None:
        """As PullConsumer.committed."""
        return await asyncio.to_thread(self._consumer.committed, queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """As PullConsumer.commit."""
        await asyncio.to_thread(self._consumer.commit, queue, offset)


class AsyncioIteration:
    """A loop over the messages of a push consumer. Made by `async for message in consumer`."""

    def __init__(self, consumer: blocking.BlockingPushConsumer) -> None:
        self._consumer = consumer
        self._iteration: blocking.BlockingIteration | None = None
        self._is_waiting = False

    def __aiter__(self) -> AsyncioIteration:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """As Iteration.__anext__. A wait that is cancelled or times out loses no message."""
        if self._is_waiting:
            raise NotIterable("another task waits for its next message; use a listener instead")
        self._is_waiting = True
        try:
            if self._iteration is None:
                self._iteration = await asyncio.to_thread(iter, self._consumer)
            # A cancellation gives up this wait, but not the future: see `coming`.
            message = await asyncio.shield(asyncio.wrap_future(self._iteration.coming()))
            self._iteration.arrived()
        finally:
            self._is_waiting = False
        if message is None:
            raise StopAsyncIteration
        return message


class AsyncioPushConsumer:
    """A running push consumer. Made by `open_push_consumer`.

    Without a listener, `async for message in consumer` gives one message after the other,
    acknowledged as in trio (see PushConsumer).
    """

    def __init__(self, consumer: blocking.BlockingPushConsumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> AsyncioIteration:
        """As PushConsumer.__aiter__; the loop begins when its first message is asked for."""
        return AsyncioIteration(self._consumer)

    async def acknowledge(self) -> None:
        """As PushConsumer.acknowledge."""
        await asyncio.to_thread(self._consumer.acknowledge)

    async def give_back(self) -> None:
        """As PushConsumer.give_back."""
        await asyncio.to_thread(self._consumer.give_back)

    async def ready(self) -> None:
        """As PushConsumer.ready."""
        await asyncio.to_thread(self._consumer.ready)

    async def queues(self) -> list[MessageQueue]:
        """As PushConsumer.queues."""
        return await asyncio.to_thread(self._consumer.queues)

    async def commit(self) -> None:
        """As PushConsumer.commit."""
        await asyncio.to_thread(self._consumer.commit)


class AsyncioPopConsumer:
    """A running consumer that pops. Made by `open_pop_consumer`."""

    def __init__(self, consumer: blocking.BlockingPopConsumer) -> None:
        self._consumer = consumer

    async def ready(self) -> None:
        """As PopConsumer.ready."""
        await asyncio.to_thread(self._consumer.ready)

    async def queues(self) -> list[MessageQueue]:
        """As PopConsumer.queues."""
        return await asyncio.to_thread(self._consumer.queues)


@asynccontextmanager
async def open_producer(producer: Producer) -> AsyncIterator[AsyncioProducer]:
    """Open a producer for an `async with` block. As dledger_mq.blocking.open_producer."""
    async with entered_in_thread(blocking.open_producer(producer)) as opened:
        yield AsyncioProducer(opened)


@asynccontextmanager
async def open_pull_consumer(consumer: PullConsumer) -> AsyncIterator[AsyncioPullConsumer]:
    """Open a pull consumer for a block. As dledger_mq.blocking.open_pull_consumer."""
    async with entered_in_thread(blocking.open_pull_consumer(consumer)) as opened:
        yield AsyncioPullConsumer(opened)


@asynccontextmanager
async def open_push_consumer(consumer: PushConsumer) -> AsyncIterator[AsyncioPushConsumer]:
    """Open a push consumer for a block. As dledger_mq.blocking.open_push_consumer.

    A listener must be one for trio: see `listener`.
    """
    async with entered_in_thread(blocking.open_push_consumer(consumer)) as opened:
        yield AsyncioPushConsumer(opened)


@asynccontextmanager
async def open_pop_consumer(consumer: PopConsumer) -> AsyncIterator[AsyncioPopConsumer]:
    """Open a consumer that pops for a block. As dledger_mq.blocking.open_pop_consumer.

    Its listener must be one for trio: see `listener`.
    """
    async with entered_in_thread(blocking.open_pop_consumer(consumer)) as opened:
        yield AsyncioPopConsumer(opened)


def listener(function: Listener) -> Listener:
    """Make a listener of a coroutine function of asyncio: it runs in the loop that runs now.

    Args:
        function: answers as a listener does.

    Raises:
        InvalidListener: it is no coroutine function.
    """
    return _in_asyncio(function)


def transaction_check(function: TransactionCheck) -> TransactionCheck:
    """Make a check of a coroutine function of asyncio: it runs in the loop that runs now.

    Args:
        function: says how the transaction of a message has ended.

    Raises:
        InvalidListener: it is no coroutine function.
    """
    return _in_asyncio(function)


def _in_asyncio(function: Callable[[Given], Awaitable[Told]]) -> Callable[[Given], Awaitable[Told]]:
    """What trio awaits and asyncio runs."""
    check_listener(function)
    loop = asyncio.get_running_loop()

    async def run(given: Given) -> Told:
        return await function(given)

    async def call_in_asyncio(given: Given) -> Told:
        token = trio.lowlevel.current_trio_token()
        done = trio.Event()

        def tell(_future: object) -> None:
            with suppress(trio.RunFinishedError):  # the consumer has ended meanwhile
                token.run_sync_soon(done.set)

        future = asyncio.run_coroutine_threadsafe(run(given), loop)
        future.add_done_callback(tell)
        try:
            await done.wait()
        except trio.Cancelled:
            future.cancel()
            raise
        return future.result()

    return call_in_asyncio
