"""Producers and consumers with blocking calls, for programs that do not use trio.

    with blocking.open_producer(Producer("writers", nameservers=NAMESERVERS)) as producer:
        result = producer.send(Message("Greetings", b"hello"))

    consumer = PushConsumer("readers", "Greetings", nameservers=NAMESERVERS)
    with blocking.open_push_consumer(consumer) as messages:
        for message in messages:
            print(message.body)

A trio loop runs in a thread of its own; `with` starts and ends it. Make the object as for trio,
with name servers of its own. Calls may come from any thread, from signal handlers and from
callbacks. A call raises CallMisplaced where it would wait for itself, and in a process that was
forked since. Other errors are those of the same call in `dledger_mq`; a call that the end of the
block interrupts raises `ClosedDuringCall`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from copy import copy
from functools import partial
from typing import Any, Final, TypeVar

import trio

from dledger.call_future import wait_for_all
from dledger.forms import Form, at_once, like, seen, waits
from dledger.loop_thread import LoopThread
from dledger.renamed import renamed_arguments
from dledger_mq.admin.admin import Admin
from dledger_mq.admin.consumer_group import ConsumerGroup
from dledger_mq.bridge import BridgedIteration, loop_for
from dledger_mq.consuming.pull_consumer import PullConsumer
from dledger_mq.consuming.push_consumer import PushConsumer
from dledger_mq.errors import (
    InvalidListener,
    NotIterable,
    SendFailed,
    TransactionRefused,
    WindowFull,
)
from dledger_mq.listener import Listener
from dledger_mq.listener_watch import called_elsewhere, calls_users
from dledger_mq.message import ConsumeResult, Message, TransactionState
from dledger_mq.popping.pop_consumer import PopConsumer
from dledger_mq.producing.outcomes import all_results
from dledger_mq.producing.producer import Producer
from dledger_mq.producing.transaction import Transaction, TransactionCheck
from dledger_mq.received_message import ReceivedMessage
from dledger_mq.send_result import SendResult
from dledger_mq.sending.selectors import QueueSelector
from dledger_mq.sending.sending import SendOutcome

Opened = TypeVar("Opened")
Given = TypeVar("Given")
Answer = TypeVar("Answer")

# `send_soon` refuses more messages than this without an outcome: twice the default window of a
# producer. It bounds the memory if threads send faster than brokers answer.
MAX_SENT_SOON: Final = 8192

# The bytes of the long ones among these messages, so that hundreds of pictures may wait. All short
# ones together have no more bytes than this.
MAX_SENT_SOON_BYTES: Final = 512 * 1024 * 1024
_LONG_BYTES: Final = MAX_SENT_SOON_BYTES // MAX_SENT_SOON


def _as_it_is(message: Message) -> Message:
    """Copy a message: the loop takes it up later, when its user may have changed it."""
    if not isinstance(message, Message):
        return message  # its producer refuses it
    taken = copy(message)
    if isinstance(taken.body, bytearray | memoryview):
        taken.body = bytes(taken.body)
    if isinstance(taken.properties, Mapping):
        taken.properties = dict(taken.properties)
    if isinstance(taken.keys, list):
        taken.keys = tuple(taken.keys)
    return taken


def _body_bytes(message: Message) -> int:
    """Return the length of a body; 0 for what a producer refuses."""
    body = getattr(message, "body", b"")
    return len(body) if isinstance(body, bytes | bytearray | memoryview) else 0


class SentSoon:
    """The messages of a producer that have no outcome yet.

    It takes no lock, so that signal handlers may send.
    """

    def __init__(self, loop: LoopThread[Any], producer: Producer) -> None:
        self._loop = loop
        self._producer = producer
        self._open: dict[Future[SendResult], int] = {}  # bytes of long bodies

    def send(
        self, message: Message, selector: QueueSelector | None, timeout_s: float | None
    ) -> Future[SendResult]:
        """Begin to send a message as it is now; messages are sent in the order of these calls."""
        message = _as_it_is(message)
        call = partial(self._producer.send, message, selector=selector, timeout_s=timeout_s)
        future = self._loop.submit(call)
        size = _body_bytes(message)
        self._open[future] = size if size > _LONG_BYTES else 0
        future.add_done_callback(self._settled)
        return future

    def check_room(self, message: Message) -> None:
        """Raises WindowFull: too many messages, or too many bytes, have no outcome yet."""
        size = _body_bytes(message)
        if len(self._open) >= MAX_SENT_SOON or (
            size > _LONG_BYTES and sum(list(self._open.values())) + size > MAX_SENT_SOON_BYTES
        ):
            raise WindowFull(getattr(message, "topic", ""), len(self._open))

    @property
    def open(self) -> list[Future[SendResult]]:
        """The futures of these messages."""
        return list(self._open)

    def _settled(self, future: Future[SendResult]) -> None:
        self._open.pop(future, None)


class BlockingProducer(Form[Producer]):
    """A running producer. Made by `open_producer`."""

    def __init__(self, loop: LoopThread[Any], producer: Producer) -> None:
        super().__init__(loop, producer)
        self._sent = SentSoon(loop, producer)

    @like(Producer.send)
    def send(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        self._loop.check_waitable()
        return self._sent.send(message, selector, timeout_s).result()

    @renamed_arguments(timeout_seconds="timeout_s")
    def send_soon(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> Future[SendResult]:
        """Begin to send a message; return a future of the result that `send` returns.

        Cancelling the future prevents the send if it has not begun.

        Raises:
            WindowFull: 8192 messages, or long ones of 512 MiB together, have no outcome yet.
        """
        self._sent.check_room(message)
        return self._sent.send(message, selector, timeout_s)

    @renamed_arguments(timeout_seconds="timeout_s")
    def send_many(
        self,
        messages: Iterable[Message],
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages; see `Producer.send_many` for results and errors.

        An iterable other than a list or tuple is iterated over in the calling thread, and each
        message is sent at once.
        """
        self._loop.check_waitable()
        if isinstance(messages, list | tuple) or not isinstance(messages, Iterable):
            call = partial(self._inner.send_many, messages, selector=selector)
            return self._loop.wait(partial(call, timeout_s=timeout_s))
        futures: list[Future[SendResult]] = []
        for number, message in enumerate(messages):
            if number >= MAX_SENT_SOON:
                wait_for_all([futures[number - MAX_SENT_SOON]])
            futures.append(self._sent.send(message, selector, timeout_s))
        return results_of(futures)

    send_batch = waits(Producer.send_batch)
    send_oneway = waits(Producer.send_oneway)
    recall = waits(Producer.recall)
    ask = waits(Producer.ask)
    reply = waits(Producer.reply)

    @renamed_arguments(timeout_seconds="timeout_s")
    def ask_soon(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> Future[ReceivedMessage]:
        """Begin to send a question as it is now; return a future of the reply (see `ask`)."""
        call = partial(self._inner.ask, _as_it_is(message), selector=selector)
        return self._loop.submit(partial(call, timeout_s=timeout_s))

    @like(Producer.transaction)
    @contextmanager
    def transaction(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[BlockingTransaction]:
        transaction = self.begin_transaction(message, selector=selector, timeout_s=timeout_s)
        try:
            yield transaction
        except Exception:
            if transaction.is_undecided:
                with suppress(TransactionRefused):
                    transaction.roll_back()
            raise
        if transaction.is_undecided:
            transaction.commit()

    @like(Producer.begin_transaction)
    def begin_transaction(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> BlockingTransaction:
        call = partial(self._inner.begin_transaction, message, selector=selector)
        made = self._loop.wait(partial(call, timeout_s=timeout_s))
        return BlockingTransaction(self._loop, made)

    def wait(self) -> None:
        """Wait until every message sent so far has its outcome."""
        self._loop.check_waitable()
        wait_for_all(self._sent.open)


class TransactionForm(Form[Transaction]):
    """What a transaction shows, and does at once."""

    id: str = seen(Transaction.id)
    is_undecided: bool = seen(Transaction.is_undecided)

    @property
    def result(self) -> SendResult:
        """The result of sending the half message."""
        return self._inner.result

    @property
    def state(self) -> TransactionState:
        """How the transaction has ended, or UNKNOWN."""
        return self._inner.state

    @like(Transaction.leave_open)
    def leave_open(self) -> None:
        self._inner.leave_open()


class BlockingTransaction(TransactionForm):
    """A message that waits for its transaction. Made by `BlockingProducer.transaction`."""

    commit = waits(Transaction.commit)
    roll_back = waits(Transaction.roll_back)


class BlockingPullConsumer(Form[PullConsumer]):
    """A running pull consumer. Made by `open_pull_consumer`."""

    queues = waits(PullConsumer.queues)
    pull = waits(PullConsumer.pull)
    first_offset = waits(PullConsumer.first_offset)
    next_offset = waits(PullConsumer.next_offset)
    offset_at = waits(PullConsumer.offset_at)
    committed = waits(PullConsumer.committed)
    commit = waits(PullConsumer.commit)


class BlockingIteration:
    """A loop over the messages of a push consumer. Made by `for message in consumer`.

    One thread at a time may ask for the next message.
    """

    def __init__(self, iteration: BridgedIteration) -> None:
        self._iteration = iteration
        self._lock = threading.Lock()

    def __iter__(self) -> BlockingIteration:
        return self

    def __next__(self) -> ReceivedMessage:
        """Acknowledge the message of this loop, and wait for the next one.

        An interrupted wait (Ctrl-C) loses no message.
        """
        if not self._lock.acquire(blocking=False):
            raise NotIterable("another thread waits for its next message; use a listener instead")
        try:
            message = self._iteration.coming().result()
            self._iteration.arrived()
        finally:
            self._lock.release()
        if message is None:
            raise StopIteration
        return message


class BlockingPushConsumer(Form[PushConsumer]):
    """A running push consumer. Made by `open_push_consumer`.

    Without a listener, `for message in consumer` yields one message after the other, acknowledged
    as by `async for` (see PushConsumer).
    """

    def __init__(self, loop: LoopThread[Any], consumer: PushConsumer) -> None:
        super().__init__(loop, consumer)
        self._iteration: BridgedIteration | None = None

    def __iter__(self) -> BlockingIteration:
        self._loop.check_waitable()
        self._iteration = BridgedIteration(self._loop, self._inner)
        self._iteration.begin().result()
        return BlockingIteration(self._iteration)

    @like(PushConsumer.acknowledge)
    def acknowledge(self) -> None:
        if self._iteration is not None:
            self._loop.wait(self._iteration.acknowledge)

    @like(PushConsumer.give_back)
    def give_back(self) -> None:
        if self._iteration is not None:
            self._loop.wait(self._iteration.give_back)

    ready = waits(PushConsumer.ready)
    queues = waits(at_once(PushConsumer.queues))
    commit = waits(PushConsumer.commit)


class BlockingPopConsumer(Form[PopConsumer]):
    """A running consumer that pops. Made by `open_pop_consumer`."""

    ready = waits(PopConsumer.ready)
    queues = waits(at_once(PopConsumer.queues))


class BlockingConsumerGroup(Form[ConsumerGroup]):
    """Administration of one consumer group. Made by `BlockingAdmin.group`."""

    def __init__(self, loop: LoopThread[Any], group: ConsumerGroup) -> None:
        super().__init__(loop, group)
        self.name = group.name

    create = waits(ConsumerGroup.create)
    progress = waits(ConsumerGroup.progress)
    connections = waits(ConsumerGroup.connections)
    running_info = waits(ConsumerGroup.running_info)
    consume_directly = waits(ConsumerGroup.consume_directly)
    consume_status = waits(ConsumerGroup.consume_status)
    time_spans = waits(ConsumerGroup.time_spans)
    reset_to_time = waits(ConsumerGroup.reset_to_time)
    reset_to_first = waits(ConsumerGroup.reset_to_first)
    skip_all = waits(ConsumerGroup.skip_all)
    reset_to_offset = waits(ConsumerGroup.reset_to_offset)
    clone_to = waits(ConsumerGroup.clone_to)


class BlockingAdmin(Form[Admin]):
    """Administration of brokers, topics and consumer groups. Made by `open_admin`."""

    brokers = waits(Admin.brokers)
    cluster = waits(Admin.cluster)
    create_topic = waits(Admin.create_topic)
    delete_topic = waits(Admin.delete_topic)
    topics = waits(Admin.topics)
    progress = waits(Admin.progress)
    find = waits(Admin.find)
    redrive = waits(Admin.redrive)
    trace = waits(Admin.trace)
    statistics = waits(Admin.statistics)
    groups_of = waits(Admin.groups_of)
    settings = waits(Admin.settings)
    change_settings = waits(Admin.change_settings)
    set_request_mode = waits(Admin.set_request_mode)
    request_modes = waits(Admin.request_modes)

    @like(Admin.group)
    def group(self, name: str) -> BlockingConsumerGroup:
        return BlockingConsumerGroup(self._loop, self._inner.group(name))


@contextmanager
def open_admin(admin: Admin) -> Iterator[BlockingAdmin]:
    """Open an administrator for a `with` block.

    Args:
        admin: a new one, with name servers of its own.
    """
    with _open(admin, "administrator") as loop:
        yield BlockingAdmin(loop, admin)


@contextmanager
def open_producer(producer: Producer) -> Iterator[BlockingProducer]:
    """Open a producer for a `with` block, whose end waits for the messages in flight.

    Args:
        producer: a new one, with name servers of its own.
    """
    with _open(producer, "producer") as loop:
        opened = BlockingProducer(loop, producer)
        try:
            yield opened
        finally:
            loop.settle(opened._sent.open)


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
        GroupInUse, InvalidMessage, OffsetFileUnreadable: see PushConsumer.
    """
    with _open(consumer, "consumer") as loop:
        yield BlockingPushConsumer(loop, consumer)


@contextmanager
def open_pop_consumer(consumer: PopConsumer) -> Iterator[BlockingPopConsumer]:
    """Open a consumer that pops for a `with` block, whose end lets listeners finish.

    Args:
        consumer: a new one, with name servers of its own, and a listener made by `listener`.

    Raises:
        GroupInUse, InvalidMessage: see PopConsumer.
    """
    with _open(consumer, "consumer") as loop:
        yield BlockingPopConsumer(loop, consumer)


def listener(function: Callable[[list[ReceivedMessage]], ConsumeResult | None]) -> Listener:
    """Make a listener of a plain function, which is called in threads, several at once.

    Args:
        function: returns what a listener returns; it may block.

    Raises:
        InvalidListener: it cannot be called, or is a coroutine function.
    """
    return _in_threads(function)


def transaction_check(
    function: Callable[[ReceivedMessage], TransactionState],
) -> TransactionCheck:
    """Make a producer's check of a plain function, which is called in threads, several at once.

    Args:
        function: returns the state of the transaction of a message; it may block.

    Raises:
        InvalidListener: it cannot be called, or is a coroutine function.
    """
    return _in_threads(function)


def _call_plain(function: Callable[[Given], Answer], given: Given) -> Answer:
    return function(given)


calls_users(_call_plain)


def _in_threads(function: Callable[[Given], Answer]) -> Callable[[Given], Awaitable[Answer]]:
    anything: object = function  # a program need not check its types
    if not callable(anything) or inspect.iscoroutinefunction(anything):
        raise InvalidListener(f"{function!r:.80} is no plain function, which a thread could call")

    async def call_in_thread(given: Given) -> Answer:
        return await trio.to_thread.run_sync(_call_plain, function, given)

    return called_elsewhere(call_in_thread, function)


@contextmanager
def _open(made: AbstractAsyncContextManager[Opened], what: str) -> Iterator[LoopThread[Any]]:
    """Run a trio loop in a thread, and keep `made` open in it.

    The block of `made` ends as if without an error, so that it waits for messages in flight.
    """
    loop: LoopThread[None] = loop_for(nullcontext, what)
    loop.open()
    try:
        with loop.kept_open(lambda: made):
            yield loop
    finally:
        loop.close()


def results_of(futures: Sequence[Future[SendResult]]) -> list[SendResult]:
    """Wait for all outcomes; return the results. Raises SomeFailed, see `Producer.send_many`."""
    wait_for_all(futures)
    outcomes: list[SendOutcome] = []
    for future in futures:
        error = future.exception()
        if error is not None and not isinstance(error, SendFailed):
            raise error
        outcomes.append(future.result() if error is None else error)
    return all_results(outcomes)
