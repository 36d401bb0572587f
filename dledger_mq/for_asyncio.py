"""Producers and consumers for programs that run asyncio.

    async with for_asyncio.open_producer(Producer("writers", nameservers=...)) as producer:
        result = await producer.send(Message("Greetings", b"hello"))

    consumer = PushConsumer("readers", "Greetings", nameservers=NAMESERVERS)
    async with for_asyncio.open_push_consumer(consumer) as messages:
        async for message in messages:
            print(message.body)

A trio loop runs in a thread beside asyncio's. Calls wait for futures, and need no thread of
asyncio's. Cancelling a call abandons the wait only. Errors are those of the same calls in
`dledger_mq`; CallMisplaced is raised in a process that was forked since. A producer or consumer
that ends by an error cancels its block, which raises the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Final, TypeVar

import trio

from dledger.asyncio_block import kept_open, opened_loop
from dledger.asyncio_forms import awaits, carried_out, given_up
from dledger.forms import Form, at_once, like
from dledger.loop_thread import LoopThread
from dledger.renamed import renamed_arguments
from dledger_mq.admin.admin import Admin
from dledger_mq.admin.consumer_group import ConsumerGroup
from dledger_mq.blocking import MAX_SENT_SOON, SentSoon, TransactionForm, results_of
from dledger_mq.bridge import BridgedIteration, loop_for
from dledger_mq.consuming.pull_consumer import PullConsumer
from dledger_mq.consuming.push_consumer import PushConsumer
from dledger_mq.errors import NotIterable
from dledger_mq.listener import Listener, check_listener
from dledger_mq.listener_watch import called_elsewhere, calls_users
from dledger_mq.message import Message
from dledger_mq.popping.pop_consumer import PopConsumer
from dledger_mq.producing.producer import Producer
from dledger_mq.producing.transaction import Transaction, TransactionCheck, decided
from dledger_mq.received_message import ReceivedMessage
from dledger_mq.send_result import SendResult
from dledger_mq.sending.selectors import QueueSelector

# How long a cancelled call of a listener may take to end: it may need answers for that.
LAST_CALL_S: Final = 5.0

Given = TypeVar("Given")
Answer = TypeVar("Answer")


class AsyncioProducer(Form[Producer]):
    """A running producer. Made by `open_producer`."""

    def __init__(self, loop: LoopThread[Any], producer: Producer) -> None:
        super().__init__(loop, producer)
        self._sent = SentSoon(loop, producer)

    @renamed_arguments(timeout_seconds="timeout_s")
    async def send(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message, see `Producer.send`; messages are sent in the order of these calls."""
        self._loop.check_waitable()
        return await given_up(self._sent.send(message, selector, timeout_s))

    @renamed_arguments(timeout_seconds="timeout_s")
    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages; see `Producer.send_many` for results and errors.

        An iterable other than a list or tuple is iterated over in asyncio's loop, and each message
        is sent at once.
        """
        self._loop.check_waitable()
        if isinstance(messages, list | tuple) or not isinstance(messages, Iterable):
            call = partial(self._inner.send_many, messages, selector=selector)
            return await carried_out(self._loop, partial(call, timeout_s=timeout_s))
        futures: list[Future[SendResult]] = []
        for number, message in enumerate(messages):
            if number >= MAX_SENT_SOON:
                await asyncio.wait([asyncio.wrap_future(futures[number - MAX_SENT_SOON])])
            futures.append(self._sent.send(message, selector, timeout_s))
        if futures:
            await asyncio.wait(list(map(asyncio.wrap_future, futures)))
        return results_of(futures)

    send_batch = awaits(Producer.send_batch)
    send_oneway = awaits(Producer.send_oneway)
    recall = awaits(Producer.recall)
    ask = awaits(Producer.ask)
    reply = awaits(Producer.reply)

    @like(Producer.transaction)
    @asynccontextmanager
    async def transaction(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[AsyncioTransaction]:
        transaction = await self.begin_transaction(message, selector=selector, timeout_s=timeout_s)
        async with decided(transaction):
            yield transaction

    @like(Producer.begin_transaction)
    async def begin_transaction(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> AsyncioTransaction:
        call = partial(self._inner.begin_transaction, message, selector=selector)
        made = await carried_out(self._loop, partial(call, timeout_s=timeout_s))
        return AsyncioTransaction(self._loop, made)

    async def wait(self) -> None:
        """Wait until every message sent so far has its outcome."""
        self._loop.check_waitable()
        if futures := self._sent.open:
            await asyncio.wait(list(map(asyncio.wrap_future, futures)))


class AsyncioTransaction(TransactionForm):
    """A message that waits for its transaction. Made by `AsyncioProducer.transaction`."""

    commit = awaits(Transaction.commit)
    roll_back = awaits(Transaction.roll_back)


class AsyncioPullConsumer(Form[PullConsumer]):
    """A running pull consumer. Made by `open_pull_consumer`."""

    queues = awaits(PullConsumer.queues)
    pull = awaits(PullConsumer.pull)
    first_offset = awaits(PullConsumer.first_offset)
    next_offset = awaits(PullConsumer.next_offset)
    offset_at = awaits(PullConsumer.offset_at)
    committed = awaits(PullConsumer.committed)
    commit = awaits(PullConsumer.commit)


class AsyncioIteration:
    """A loop over the messages of a push consumer. Made by `async for message in consumer`."""

    def __init__(self, iteration: BridgedIteration) -> None:
        self._iteration = iteration
        self._is_waiting = False

    def __aiter__(self) -> AsyncioIteration:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Acknowledge the message of this loop, and wait for the next one.

        A wait that is cancelled or times out loses no message.
        """
        if self._is_waiting:
            raise NotIterable("another task waits for its next message; use a listener instead")
        self._is_waiting = True
        try:
            # Cancelling abandons this wait, but not the future: see `coming`.
            message = await asyncio.shield(asyncio.wrap_future(self._iteration.coming()))
            self._iteration.arrived()
        finally:
            self._is_waiting = False
        if message is None:
            raise StopAsyncIteration
        return message


class AsyncioPushConsumer(Form[PushConsumer]):
    """A running push consumer. Made by `open_push_consumer`.

    Without a listener, `async for message in consumer` yields one message after the other,
    acknowledged as in trio (see PushConsumer).
    """

    def __init__(self, loop: LoopThread[Any], consumer: PushConsumer) -> None:
        super().__init__(loop, consumer)
        self._iteration: BridgedIteration | None = None

    def __aiter__(self) -> AsyncioIteration:
        """Begin a loop over the messages when its first message is asked for."""
        self._loop.check_waitable()
        self._iteration = BridgedIteration(self._loop, self._inner)
        return AsyncioIteration(self._iteration)

    @like(PushConsumer.acknowledge)
    async def acknowledge(self) -> None:
        if self._iteration is not None:
            await carried_out(self._loop, self._iteration.acknowledge)

    @like(PushConsumer.give_back)
    async def give_back(self) -> None:
        if self._iteration is not None:
            await carried_out(self._loop, self._iteration.give_back)

    ready = awaits(PushConsumer.ready)
    queues = awaits(at_once(PushConsumer.queues))
    commit = awaits(PushConsumer.commit)


class AsyncioPopConsumer(Form[PopConsumer]):
    """A running consumer that pops. Made by `open_pop_consumer`."""

    ready = awaits(PopConsumer.ready)
    queues = awaits(at_once(PopConsumer.queues))


class AsyncioConsumerGroup(Form[ConsumerGroup]):
    """Administration of one consumer group. Made by `AsyncioAdmin.group`."""

    def __init__(self, loop: LoopThread[Any], group: ConsumerGroup) -> None:
        super().__init__(loop, group)
        self.name = group.name

    create = awaits(ConsumerGroup.create)
    progress = awaits(ConsumerGroup.progress)
    connections = awaits(ConsumerGroup.connections)
    running_info = awaits(ConsumerGroup.running_info)
    consume_directly = awaits(ConsumerGroup.consume_directly)
    consume_status = awaits(ConsumerGroup.consume_status)
    time_spans = awaits(ConsumerGroup.time_spans)
    reset_to_time = awaits(ConsumerGroup.reset_to_time)
    reset_to_first = awaits(ConsumerGroup.reset_to_first)
    skip_all = awaits(ConsumerGroup.skip_all)
    reset_to_offset = awaits(ConsumerGroup.reset_to_offset)
    clone_to = awaits(ConsumerGroup.clone_to)


class AsyncioAdmin(Form[Admin]):
    """Administration of brokers, topics and consumer groups. Made by `open_admin`."""

    brokers = awaits(Admin.brokers)
    cluster = awaits(Admin.cluster)
    create_topic = awaits(Admin.create_topic)
    delete_topic = awaits(Admin.delete_topic)
    topics = awaits(Admin.topics)
    progress = awaits(Admin.progress)
    find = awaits(Admin.find)
    redrive = awaits(Admin.redrive)
    trace = awaits(Admin.trace)
    statistics = awaits(Admin.statistics)
    groups_of = awaits(Admin.groups_of)
    settings = awaits(Admin.settings)
    change_settings = awaits(Admin.change_settings)
    set_request_mode = awaits(Admin.set_request_mode)
    request_modes = awaits(Admin.request_modes)

    @like(Admin.group)
    def group(self, name: str) -> AsyncioConsumerGroup:
        return AsyncioConsumerGroup(self._loop, self._inner.group(name))


@asynccontextmanager
async def open_admin(admin: Admin) -> AsyncIterator[AsyncioAdmin]:
    """Open an administrator for an `async with` block, see `dledger_mq.blocking.open_admin`."""
    async with _open(admin, "administrator") as loop:
        yield AsyncioAdmin(loop, admin)


@asynccontextmanager
async def open_producer(producer: Producer) -> AsyncIterator[AsyncioProducer]:
    """Open a producer for an `async with` block, see `dledger_mq.blocking.open_producer`."""
    async with _open(producer, "producer") as loop:
        opened = AsyncioProducer(loop, producer)
        try:
            yield opened
        finally:
            await opened.wait()


@asynccontextmanager
async def open_pull_consumer(consumer: PullConsumer) -> AsyncIterator[AsyncioPullConsumer]:
    """Open a pull consumer for a block, see `dledger_mq.blocking.open_pull_consumer`."""
    async with _open(consumer, "consumer") as loop:
        yield AsyncioPullConsumer(loop, consumer)


@asynccontextmanager
async def open_push_consumer(consumer: PushConsumer) -> AsyncIterator[AsyncioPushConsumer]:
    """Open a push consumer for a block, see `dledger_mq.blocking.open_push_consumer`.

    A listener must be one for trio: see `listener`.
    """
    async with _open(consumer, "consumer") as loop:
        yield AsyncioPushConsumer(loop, consumer)


@asynccontextmanager
async def open_pop_consumer(consumer: PopConsumer) -> AsyncIterator[AsyncioPopConsumer]:
    """Open a consumer that pops for a block, see `dledger_mq.blocking.open_pop_consumer`.

    Its listener must be one for trio: see `listener`.
    """
    async with _open(consumer, "consumer") as loop:
        yield AsyncioPopConsumer(loop, consumer)


@asynccontextmanager
async def _open(
    made: AbstractAsyncContextManager[Any], what: str
) -> AsyncIterator[LoopThread[Any]]:
    """See `dledger_mq.blocking._open`."""
    loop: LoopThread[None] = loop_for(nullcontext, what)
    async with opened_loop(loop), kept_open(loop, lambda: made):
        yield loop


def listener(function: Listener) -> Listener:
    """Make a listener of a coroutine function of asyncio, which runs in the current loop.

    Args:
        function: returns what a listener returns.

    Raises:
        InvalidListener: it is no coroutine function.
    """
    return _in_asyncio(function)


def transaction_check(function: TransactionCheck) -> TransactionCheck:
    """Make a check of a coroutine function of asyncio, which runs in the current loop.

    Args:
        function: returns the state of the transaction of a message.

    Raises:
        InvalidListener: it is no coroutine function.
    """
    return _in_asyncio(function)


def _in_asyncio(
    function: Callable[[Given], Awaitable[Answer]],
) -> Callable[[Given], Awaitable[Answer]]:
    check_listener(function)
    loop = asyncio.get_running_loop()

    async def run(given: Given, begun: list[asyncio.Task[Any]]) -> Answer:
        task = asyncio.current_task()
        assert task is not None
        begun.append(task)
        return await function(given)

    async def call_in_asyncio(given: Given) -> Answer:
        token = trio.lowlevel.current_trio_token()
        done = trio.Event()

        def wake(_future: object) -> None:
            with suppress(trio.RunFinishedError):  # the consumer has ended meanwhile
                token.run_sync_soon(done.set)

        begun: list[asyncio.Task[Any]] = []
        running = run(given, begun)
        try:
            future = asyncio.run_coroutine_threadsafe(running, loop)
        except RuntimeError:  # asyncio's loop is closed
            running.close()
            raise
        future.add_done_callback(wake)
        try:
            await done.wait()
        except trio.Cancelled:

            def cancel() -> None:
                (begun[0] if begun else future).cancel()

            with suppress(RuntimeError):
                loop.call_soon_threadsafe(cancel)
            # The call may still succeed, and its answer counts then: wait for its end.
            with trio.move_on_after(LAST_CALL_S, shield=True):
                await done.wait()
            if not future.done() or future.cancelled():
                raise
        return future.result()

    calls_users(run)
    return called_elsewhere(call_in_asyncio, function)
