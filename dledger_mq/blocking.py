"""Producers and consumers with blocking calls, for programs that do not use trio.

    with blocking.open_producer(Producer("writers", nameservers=NAMESERVERS)) as producer:
        result = producer.send(Message("Greetings", b"hello"))

    consumer = PushConsumer("readers", "Greetings", nameservers=NAMESERVERS)
    with blocking.open_push_consumer(consumer) as messages:
        for message in messages:
            print(message.body)

A trio loop runs in a thread of its own; `with` starts and ends it. The object is made as always,
with name servers of its own. Calls may come from any thread. Every error is that of the same call
in `dledger_mq`; a call that the end of the block interrupts raises `ClosedDuringCall`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import trio

from dledger.loop_thread import LoopThread
from dledger_mq.errors import InvalidListener, NotIterable, TransactionRefused, WindowFull
from dledger_mq.iteration import Iteration
from dledger_mq.listener import Listener
from dledger_mq.message import ConsumeResult, Message
from dledger_mq.mq_loop import loop_for
from dledger_mq.pop_consumer import PopConsumer
from dledger_mq.producer import Producer
from dledger_mq.pull_consumer import PullConsumer
from dledger_mq.pulling import PULL_BATCH, PullResult
from dledger_mq.push_consumer import PushConsumer
from dledger_mq.received_message import ReceivedMessage
from dledger_mq.selectors import QueueSelector
from dledger_mq.send_result import SendResult
from dledger_mq.subscription import ALL, Sql
from dledger_mq.transaction import Transaction, TransactionCheck
from dledger_mq.transaction_state import TransactionState
from remoting.bodies.message_queue import MessageQueue

Opened = TypeVar("Opened")

# Messages without an outcome, beyond which `send_soon` takes no more: twice the window that a
# producer has by default. It bounds the memory if threads send faster than brokers answer.
MAX_SENT_SOON = 8192


class BlockingProducer:
    """A running producer. Made by `open_producer`."""

    def __init__(self, loop: LoopThread[Any], producer: Producer) -> None:
        self._loop = loop
        self._producer = producer
        self._lock = threading.Lock()
        self._open: set[Future[SendResult]] = set()  # those that have no outcome yet

    def send(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """As Producer.send."""
        return self.begin_send(message, selector, timeout_seconds).result()

    def send_soon(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> Future[SendResult]:
        """As `send`, but return a future. Cancelling it before the message is sent prevents that.

        Raises:
            WindowFull: 8192 messages have no outcome yet.
        """
        with self._lock:
            if len(self._open) >= MAX_SENT_SOON:
                raise WindowFull(message.topic, MAX_SENT_SOON)
        return self.begin_send(message, selector, timeout_seconds)

    def send_many(
        self,
        messages: Iterable[Message],
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> list[SendResult]:
        """As Producer.send_many; `messages` are taken in the producer's thread."""
        call = partial(
            self._producer.send_many, messages, selector=selector, timeout_seconds=timeout_seconds
        )
        return self._loop.submit(call).result()

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """As Producer.send_batch."""
        call = partial(
            self._producer.send_batch, messages, selector=selector, timeout_seconds=timeout_seconds
        )
        return self._loop.submit(call).result()

    def send_oneway(self, message: Message, *, selector: QueueSelector | None = None) -> None:
        """As Producer.send_oneway."""
        self._loop.submit(partial(self._producer.send_oneway, message, selector=selector)).result()

    def recall(self, result: SendResult) -> bool:
        """As Producer.recall."""
        return self._loop.submit(partial(self._producer.recall, result)).result()

    def ask(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> ReceivedMessage:
        """As Producer.ask."""
        call = partial(
            self._producer.ask, message, selector=selector, timeout_seconds=timeout_seconds
        )
        return self._loop.submit(call).result()

    def reply(self, asked: ReceivedMessage, body: bytes) -> None:
        """As Producer.reply."""
        self._loop.submit(partial(self._producer.reply, asked, body)).result()

    @contextmanager
    def transaction(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> Iterator[BlockingTransaction]:
        """As Producer.transaction."""
        transaction = self.begin_transaction(
            message, selector=selector, timeout_seconds=timeout_seconds
        )
        try:
            yield transaction
        except Exception:
            if transaction.is_undecided:
                with suppress(TransactionRefused):
                    transaction.roll_back()
            raise
        if transaction.is_undecided:
            transaction.commit()

    def begin_transaction(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_seconds: float | None = None,
    ) -> BlockingTransaction:
        """As Producer.begin_transaction."""
        call = partial(
            self._producer.begin_transaction,
            message,
            selector=selector,
            timeout_seconds=timeout_seconds,
        )
        return BlockingTransaction(self._loop, self._loop.submit(call).result())

    def begin_send(
        self, message: Message, selector: QueueSelector | None, timeout_seconds: float | None
    ) -> Future[SendResult]:
        """As `send_soon`, without its limit: for callers that wait for every future."""
        call = partial(
            self._producer.send, message, selector=selector, timeout_seconds=timeout_seconds
        )
        future = self._loop.submit(call)
        with self._lock:
            self._open.add(future)
        future.add_done_callback(self._settled)
        return future

    def wait(self) -> None:
        """Wait until every message sent so far has its outcome."""
        with self._lock:
            waiting = list(self._open)
        wait(waiting)

    def _settled(self, future: Future[SendResult]) -> None:
        with self._lock:
            self._open.discard(future)


class BlockingTransaction:
    """A message that waits for its transaction. Made by `BlockingProducer.transaction`."""

    def __init__(self, loop: LoopThread[Any], transaction: Transaction) -> None:
        self._loop = loop
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

    def commit(self) -> bool:
        """As Transaction.commit."""
        return self._loop.submit(self._transaction.commit).result()

    def roll_back(self) -> bool:
        """As Transaction.roll_back."""
        return self._loop.submit(self._transaction.roll_back).result()

    def leave_open(self) -> None:
        """As Transaction.leave_open."""
        self._transaction.leave_open()


class BlockingPullConsumer:
    """A running pull consumer. Made by `open_pull_consumer`."""

    def __init__(self, loop: LoopThread[Any], consumer: PullConsumer) -> None:
        self._loop = loop
        self._consumer = consumer

    def queues(self, topic: str) -> list[MessageQueue]:
        """As PullConsumer.queues."""
        return self._loop.submit(partial(self._consumer.queues, topic)).result()

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: str | Sql = ALL,
        most: int = PULL_BATCH,
        hold_seconds: float = 0.0,
    ) -> PullResult:
        """As PullConsumer.pull."""
        call = partial(
            self._consumer.pull, queue, offset, tags=tags, most=most, hold_seconds=hold_seconds
        )
        return self._loop.submit(call).result()

    def first_offset(self, queue: MessageQueue) -> int:
        """As PullConsumer.first_offset."""
        return self._loop.submit(partial(self._consumer.first_offset, queue)).result()

    def next_offset(self, queue: MessageQueue) -> int:
        """As PullConsumer.next_offset."""
        return self._loop.submit(partial(self._consumer.next_offset, queue)).result()

    def offset_at(self, queue: MessageQueue, timestamp_milliseconds: int) -> int:
        """As PullConsumer.offset_at."""
        call = partial(self._consumer.offset_at, queue, timestamp_milliseconds)
        return self._loop.submit(call).result()

    def committed(self, queue: MessageQueue) -> int | None:
        """As PullConsumer.committed."""
        return self._loop.submit(partial(self._consumer.committed, queue)).result()

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """As PullConsumer.commit."""
        self._loop.submit(partial(self._consumer.commit, queue, offset)).result()


class BlockingIteration:
    """A loop over the messages of a push consumer. Made by `for message in consumer`.

    One thread at a time may ask for the next message.
    """

    def __init__(self, loop: LoopThread[Any], iteration: Iteration) -> None:
        self._loop = loop
        self._iteration = iteration
        self._lock = threading.Lock()
        self._coming: Future[ReceivedMessage | None] | None = None

    def __iter__(self) -> BlockingIteration:
        return self

    def __next__(self) -> ReceivedMessage:
        """As Iteration.__anext__. An interrupted wait (Ctrl-C) loses no message."""
        if not self._lock.acquire(blocking=False):
            raise NotIterable("another thread waits for its next message; use a listener instead")
        try:
            message = self.coming().result()
            self.arrived()
        finally:
            self._lock.release()
        if message is None:
            raise StopIteration
        return message

    def coming(self) -> Future[ReceivedMessage | None]:
        """Acknowledge the message of this loop; return a future of the next one, None at the end.

        Until `arrived` is called, this returns the same future: a message that has come while its
        waiter was interrupted is for the next one, and must not be acknowledged before.
        """
        if self._coming is None:
            self._coming = self._loop.submit(lambda: anext(self._iteration, None))
        return self._coming

    def arrived(self) -> None:
        """The caller has the message of `coming`."""
        self._coming = None

    def acknowledge(self) -> Future[None]:
        """As Iteration.acknowledge."""

        async def acknowledge() -> None:
            if self._coming is None:  # else the message before is acknowledged already
                self._iteration.acknowledge()

        return self._loop.submit(acknowledge)

    def give_back(self) -> Future[None]:
        """As Iteration.give_back."""

        async def give_back() -> None:
            if self._coming is None:
                await self._iteration.give_back()

        return self._loop.submit(give_back)


class BlockingPushConsumer:
    """A running push consumer. Made by `open_push_consumer`.

    Without a listener, `for message in consumer` gives one message after the other, acknowledged
    as with `async for` (see PushConsumer).
    """

    def __init__(self, loop: LoopThread[Any], consumer: PushConsumer) -> None:
        self._loop = loop
        self._consumer = consumer
        self._iteration: BlockingIteration | None = None

    def __iter__(self) -> BlockingIteration:
        """As PushConsumer.__aiter__."""

        async def begin() -> Iteration:
            return aiter(self._consumer)

        self._iteration = BlockingIteration(self._loop, self._loop.submit(begin).result())
        return self._iteration

    def acknowledge(self) -> None:
        """As PushConsumer.acknowledge."""
        if self._iteration is not None:
            self._iteration.acknowledge().result()

    def give_back(self) -> None:
        """As PushConsumer.give_back."""
        if self._iteration is not None:
            self._iteration.give_back().result()

    def ready(self) -> None:
        """As PushConsumer.ready."""
        self._loop.submit(self._consumer.ready).result()

    def queues(self) -> list[MessageQueue]:
        """As PushConsumer.queues."""

        async def queues() -> list[MessageQueue]:
            return self._consumer.queues()

        return self._loop.submit(queues).result()

    def commit(self) -> None:
        """As PushConsumer.commit."""
        self._loop.submit(self._consumer.commit).result()


class BlockingPopConsumer:
    """A running consumer that pops. Made by `open_pop_consumer`."""

    def __init__(self, loop: LoopThread[Any], consumer: PopConsumer) -> None:
        self._loop = loop
        self._consumer = consumer

    def ready(self) -> None:
        """As PopConsumer.ready."""
        self._loop.submit(self._consumer.ready).result()

    def queues(self) -> list[MessageQueue]:
        """As PopConsumer.queues."""

        async def queues() -> list[MessageQueue]:
            return self._consumer.queues()

        return self._loop.submit(queues).result()


@contextmanager
def open_producer(producer: Producer) -> Iterator[BlockingProducer]:
    """Open a producer for a `with` block, whose end waits for the outcome of what is in flight.

    Args:
        producer: a new one, with name servers of its own.
    """
    with _open(producer, "producer") as loop:
        opened = BlockingProducer(loop, producer)
        try:
            yield opened
        finally:
            opened.wait()


@contextmanager
def open_pull_consumer(consumer: PullConsumer) -> Iterator[BlockingPullConsumer]:
    """Open a pull consumer for a `with` block.

    Args:
        consumer: a new one, with name servers of its own.
    """
    with _open(consumer, "consumer") as loop:
        yield BlockingPullConsumer(loop, consumer)


@contextmanager
def open_push_consumer(consumer: PushConsumer) -> Iterator[BlockingPushConsumer]:
    """Open a push consumer for a `with` block, whose end lets listeners finish, and commits.

    Args:
        consumer: a new one, with name servers of its own; for a listener that is a plain function,
            see `listener`.

    Raises:
        GroupInUse, InvalidMessage, OffsetFileUnreadable: as PushConsumer.
    """
    with _open(consumer, "consumer") as loop:
        yield BlockingPushConsumer(loop, consumer)


@contextmanager
def open_pop_consumer(consumer: PopConsumer) -> Iterator[BlockingPopConsumer]:
    """Open a consumer that pops for a `with` block, whose end lets listeners finish.

    Args:
        consumer: a new one, with name servers of its own, and a listener made by `listener`.

    Raises:
        GroupInUse, InvalidMessage: as PopConsumer.
    """
    with _open(consumer, "consumer") as loop:
        yield BlockingPopConsumer(loop, consumer)


def listener(function: Callable[[list[ReceivedMessage]], ConsumeResult | None]) -> Listener:
    """Make a listener of a plain function: it is called in threads, several at once.

    Args:
        function: answers as a listener does; it may block.

    Raises:
        InvalidListener: it cannot be called, or is a coroutine function.
    """
    _check_plain(function)

    async def call_in_thread(messages: list[ReceivedMessage]) -> ConsumeResult | None:
        return await trio.to_thread.run_sync(function, messages)

    return call_in_thread


def transaction_check(
    function: Callable[[ReceivedMessage], TransactionState],
) -> TransactionCheck:
    """Make a producer's check of a plain function: it is called in threads, several at once.

    Args:
        function: says how the transaction of a message has ended; it may block.

    Raises:
        InvalidListener: it cannot be called, or is a coroutine function.
    """
    _check_plain(function)

    async def call_in_thread(message: ReceivedMessage) -> TransactionState:
        return await trio.to_thread.run_sync(function, message)

    return call_in_thread


def _check_plain(function: object) -> None:
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise InvalidListener(f"{function!r:.80} is no plain function, which a thread could call")


@contextmanager
def _open(made: AbstractAsyncContextManager[Opened], what: str) -> Iterator[LoopThread[Any]]:
    """Run a loop in a thread, and keep what was made open in it.

    The block of `made` ends as if without an error, so that it waits for what is in flight.
    """
    loop: LoopThread[None] = loop_for(nullcontext, what)
    loop.open()
    try:
        with loop.keep_open(lambda: made):
            yield loop
    finally:
        loop.close()
