"""The producer, which sends each message until its outcome is known, or its time is over."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import trio

from dledger.patient_limit import patient_limit
from dledger.renamed import renamed_arguments
from dledger_mq.argument_checks import (
    check_callable,
    check_kind,
    check_limit_s,
    check_number,
)
from dledger_mq.client_metrics import ClientMetrics, reported
from dledger_mq.connection import requests
from dledger_mq.connection.calls import call_master
from dledger_mq.connection.client import Asked, Client
from dledger_mq.connection.client_use import ClientUse
from dledger_mq.connection.lifetime import Background, during_block
from dledger_mq.connection.replies import question, reply_to
from dledger_mq.connection.this_process import now_ms
from dledger_mq.connection.topic_route import why_not_writable
from dledger_mq.errors import (
    InvalidMessage,
    NoMaster,
    NoReply,
    NoTransactionCheck,
    Rejected,
    RequestRefused,
    SendFailed,
    WindowFull,
)
from dledger_mq.listener import check_listener
from dledger_mq.message import (
    MAX_BODY_BYTES,
    MAX_TOPIC_CHARACTERS,
    Message,
    TransactionState,
    check_group,
)
from dledger_mq.producing.outcomes import OneOutcome, Outcomes, all_results
from dledger_mq.producing.transaction import (
    Transaction,
    TransactionCheck,
    TransactionChecks,
    decided,
)
from dledger_mq.received_message import ReceivedMessage
from dledger_mq.send_result import SendResult
from dledger_mq.sending.batching import Batching
from dledger_mq.sending.composer import COMPRESS_FROM_BYTES, Composer
from dledger_mq.sending.selectors import QueueSelector, RoundRobin, chosen_queue
from dledger_mq.sending.send_pipeline import MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES, SendPipeline
from dledger_mq.sending.sending import SendCallback, Sending, SendOutcome
from dledger_mq.tracing.trace_writer import TraceWriter, open_trace, trace_topic
from remoting.message.properties import (
    PRODUCER_GROUP,
    TRANSACTION_PREPARED,
    properties_text,
)
from remoting.message.record import TRANSACTION_PREPARED as PREPARED_FLAG
from remoting.net.tls_config import Tls
from remoting.wire.codes import ResponseCode
from remoting.wire.signature import Credentials

# RocketMQ's sendMsgTimeout: all attempts of a message together.
SEND_TIMEOUT_S: Final = 3.0

# How long the end of the block waits for checks; a consumer waits as long for its listener.
LAST_CHECKS_S: Final = 5.0

# `send_many` lets the writer run after this many messages, so that the broker works meanwhile.
_MESSAGES_A_TURN: Final = 64

_JOIN_WHAT_IS_READY: Final = Batching()


class Producer:
    """Sends messages.

    Use it as ``async with Producer("group", nameservers=["127.0.0.1:9876"]) as producer``. The end
    of the block waits for the outcome of messages in flight; leaving it by an error does not.

    Args:
        group: the producer group.
        nameservers: "host:port" each, or one text with semicolons between them, for a client of its
            own.
        client: an open client to share instead.
        tls: TLS with all name servers and brokers, for a client of its own.
        credentials: the user that a client of its own is, where brokers have access control.
        timeout_s: how long all attempts of one message may take. The time begins with the first
            attempt: while the window is full, a message waits for its turn as long as answers come.
            If none comes for so long, it is `Rejected`.
        compress_from_bytes: bodies this long or longer are compressed by zlib.
        max_body_bytes: longer bodies are refused here; brokers refuse more than 4 MiB by default.
        max_in_flight: the most messages that wait for their answers.
        max_in_flight_bytes: the most bytes of these messages.
        batching: how single messages are joined to batches; None: each is a request of its own.
        metrics: receives the outcome of each message, except those of `send_oneway`.
        trace: whether the same outcomes are also written to RocketMQ's trace topic, or the name of
            another trace topic. See `Admin.trace`.
        check: a coroutine function that returns the state of a transaction of this group when a
            broker asks, also of a transaction of another producer, which has died.

    Raises:
        InvalidOptions: a number is out of range, here or in a call.
        InvalidArgument: another argument is of another kind, here or in a call.
    """

    @renamed_arguments(timeout_seconds="timeout_s")
    def __init__(
        self,
        group: str,
        *,
        nameservers: str | Sequence[str] = (),
        client: Client | None = None,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        timeout_s: float = SEND_TIMEOUT_S,
        compress_from_bytes: int = COMPRESS_FROM_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES,
        batching: Batching | None = _JOIN_WHAT_IS_READY,
        metrics: ClientMetrics | None = None,
        trace: bool | str = False,
        check: TransactionCheck | None = None,
    ) -> None:
        check_group(group, MAX_TOPIC_CHARACTERS)
        if check is not None:
            check_listener(check)
        if batching is not None:
            check_kind("Producer", "batching", batching, Batching, "Batching(...), or None")
        check_limit_s("Producer", "timeout_s", timeout_s)
        for name, value in (
            ("compress_from_bytes", compress_from_bytes),
            ("max_body_bytes", max_body_bytes),
            ("max_in_flight", max_in_flight),
            ("max_in_flight_bytes", max_in_flight_bytes),
        ):
            check_number("Producer", name, value, 0, 1 << 50, whole=True)
        self.group = group
        self._use = ClientUse("producer", "Producer", nameservers, client, group, tls, credentials)
        self._client, self._lifetime = self._use.client, self._use.lifetime
        self._timeout_s = timeout_s
        self._body_limits = (compress_from_bytes, max_body_bytes)
        self._window = (max_in_flight, max_in_flight_bytes)
        self._batching = batching
        self._metrics = reported(metrics)
        self._trace_topic = trace_topic(trace)
        self._trace: TraceWriter | None = None
        self._check = check
        self._asked: Asked | None = None
        self._pipeline: SendPipeline | None = None
        self._composer: Composer | None = None
        self._oneway_turn = RoundRobin()

    async def __aenter__(self) -> "Producer":
        """Open the producer; the first send asks for its route.

        Raises:
            OpenedTwice: it was opened before.
            ClientClosed: the shared client is not open.
        """
        await self._use.open(self._work)
        return self

    async def __aexit__(self, *raised: Any) -> None:
        """Wait for outcomes and checks (unless an error ends the block), leave the group, close.

        A check that runs in a thread is always waited for, and its result is sent.
        """
        await self._use.close(*raised)

    @asynccontextmanager
    async def _work(self) -> AsyncIterator[None]:
        client, lifetime = self._client, self._lifetime
        async with AsyncExitStack() as stack:
            self._trace = await open_trace(stack, self._use, self._trace_topic)
            nursery = await stack.enter_async_context(Background(lifetime))
            stack.callback(self._forget)
            calls = await stack.enter_async_context(Background(lifetime))  # of the check
            pipeline = SendPipeline(
                client,
                self.group,
                *self._window,
                self._batching,
                self._metrics,
                None if self._trace is None else self._trace.sent,
            )
            composer = Composer(client.identity, now_ms, *self._body_limits)
            checks = None
            if self._check is not None:
                checks = TransactionChecks(
                    self.group,
                    self._check,
                    calls,
                    client.listener_watch,
                    client.remoting.sign,
                    self._transaction_answered,
                )
                self._asked = checks.asked
            nursery.start_soon(pipeline.run)
            client.routes.watch(pipeline.route_changed)
            client.add_producer(self.group, self._asked)
            self._pipeline, self._composer = pipeline, composer
            try:
                yield
                await pipeline.drain()
                if checks is not None:
                    await checks.finish(LAST_CHECKS_S)
            finally:
                client.routes.unwatch(pipeline.route_changed)
                pipeline.close(lifetime.failure)
                await calls.end()
                await client.remove_producer(self.group, self._asked)

    def _forget(self) -> None:
        self._pipeline = self._composer = None

    @renamed_arguments(timeout_seconds="timeout_s")
    async def send(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message and wait for its acknowledgement.

        Cancelling abandons the wait only: the message may still be stored. If it still waits for
        room in the window, it is not sent.

        Args:
            message: the message.
            selector: chooses the queue; without it queues take turns.
            timeout_s: how long all attempts may take; the producer's when None.

        Raises:
            Rejected: it is certainly not stored.
            OutcomeUnknown: it may be stored.
        """
        outcome = OneOutcome()
        sending = self._compose().message(message, selector, self._limit_s(timeout_s), outcome)
        return await self._send_one(sending, outcome)

    @renamed_arguments(timeout_seconds="timeout_s")
    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages, many in flight at once, and wait for all acknowledgements.

        Messages to the same queue are stored in their order, unless one has to be sent again.

        Args:
            messages: messages of any topics; taken one by one when the window has room.
            selector: chooses the queue of each; without it queues take turns.
            timeout_s: how long all attempts of each may take; the producer's when None.

        Raises:
            SomeFailed: not all were acknowledged; it has the outcome of each.
        """
        check_kind("Producer", "messages", messages, Iterable, "a list of Messages")
        pipeline = self._opened()
        compose = self._compose().message
        limit_s = self._limit_s(timeout_s)
        outcomes = Outcomes()
        called_at = pipeline.now()
        for number, message in enumerate(messages):
            settle = outcomes.next()
            try:
                sending = compose(message, selector, limit_s, settle)
            except InvalidMessage as error:
                settle(error)
                continue
            if not pipeline.submit(sending, called_at):
                await pipeline.wait_for_start(sending)
            if number % _MESSAGES_A_TURN == _MESSAGES_A_TURN - 1:
                await trio.lowlevel.checkpoint()
        return all_results(await outcomes.all())

    @renamed_arguments(timeout_seconds="timeout_s")
    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request to one queue; all are stored, or none.

        Args:
            messages: at least one; together at most `max_body_bytes`, without a delay level.
            selector: chooses the queue for all, by the first message.
            timeout_s: how long all attempts may take; the producer's when None.

        Raises:
            Rejected: none of them is stored.
            OutcomeUnknown: all or none may be stored.
        """
        check_kind("Producer", "messages", messages, Sequence, "a list of Messages")
        outcome = OneOutcome()
        sending = self._compose().batch(messages, selector, self._limit_s(timeout_s), outcome)
        return await self._send_one(sending, outcome)

    @renamed_arguments(timeout_seconds="timeout_s")
    def send_nowait(
        self,
        message: Message,
        callback: SendCallback,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Send a message without waiting; `callback` is called with its outcome once.

        It costs no task. The callback is synchronous, must not block, and may be called before this
        returns. Its errors are logged.

        Args:
            message: the message.
            callback: gets a `SendResult` or a `SendFailed`.
            selector: chooses the queue; without it queues take turns.
            timeout_s: how long all attempts may take; the producer's when None.

        Raises:
            InvalidMessage: brokers would refuse it.
            WindowFull: the allowed number of messages wait for their answers.
        """
        check_callable("Producer", "callback", callback, "a function of the outcome")
        pipeline = self._opened()
        sending = self._compose().message(message, selector, self._limit_s(timeout_s), callback)
        if not pipeline.has_room(sending.weight):
            raise WindowFull(message.topic, pipeline.max_in_flight)
        pipeline.start(sending)

    @during_block
    async def send_oneway(self, message: Message, *, selector: QueueSelector | None = None) -> None:
        """Send a message without an acknowledgement: it is lost silently if anything fails.

        Args:
            message: the message.
            selector: chooses the queue; without it queues take turns.

        Raises:
            InvalidMessage: brokers would refuse it.
            RouteNotFound, NameServersUnreachable: the topic has no route.
            Rejected: the topic has no leader now, or the selector fails.
        """
        sending = self._compose().message(message, selector, self._limit_s(None), _ignore)
        route = await self._client.routes.find(message.topic, may_create=True)
        if not route.write_queues:
            route = await self._client.routes.refresh(message.topic, may_create=True)
        if not route.write_queues:
            raise Rejected(message.topic, why_not_writable(route), 0)
        if selector is None:
            queue = self._oneway_turn.choose(route.write_queues)
        else:
            try:
                queue = chosen_queue(selector, route.write_queues, message)
            except Exception as error:
                raise Rejected(message.topic, f"its queue selector failed: {error!r}", 0) from error
        await self._opened().compression.alone(sending)
        command = requests.send(
            self.group,
            queue,
            sending.body,
            properties_text(sending.properties),
            system_flag=sending.system_flag,
            flag=message.flag,
            born_ms=sending.born_ms,
            oneway=True,
        )
        address = route.masters.get(queue.broker_name)
        if address is None:  # an order configuration keeps the queues of a broker that is away
            raise Rejected(message.topic, str(NoMaster(message.topic, queue.broker_name)), 0)
        self._client.remoting.send_oneway(address, command)
        await trio.lowlevel.checkpoint()

    @during_block
    async def recall(self, result: SendResult) -> bool:
        """Cancel a delayed message.

        Args:
            result: the result of its send.

        Returns:
            Whether it was cancelled, and is never delivered. Otherwise it was delivered or
            cancelled before, perhaps by an attempt of this call whose answer was lost.

        Raises:
            InvalidMessage: it was not delayed by a time, or its broker gives no handles.
            RequestRefused, NoMaster, NameServersUnreachable: the outcome is unknown.
        """
        check_kind("Producer", "result", result, SendResult, "the result of a send")
        self._opened()
        topic, handle = result.queue.topic, result.recall_handle
        if not handle:
            raise InvalidMessage(topic, "the result of the send has no handle to recall it by")
        try:
            await call_master(
                self._client, result.queue, requests.recall(topic, handle), "recall a message"
            )
        except RequestRefused as refused:
            if refused.code == ResponseCode.ILLEGAL_OPERATION:
                return False
            raise
        return True

    @renamed_arguments(timeout_seconds="timeout_s")
    @during_block
    async def ask(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> ReceivedMessage:
        """Send a message that a consumer replies to, and wait for the reply.

        Args:
            message: the question.
            selector: chooses the queue; without it queues take turns.
            timeout_s: how long the send and the reply may take; the producer's when None.

        Raises:
            Rejected: the question is certainly not stored.
            OutcomeUnknown: it may be stored; this does not wait for a reply.
            NoReply: it is stored, and no reply came in time.
        """
        self._opened()
        limit_s = self._limit_s(timeout_s)
        deadline = trio.current_time() + limit_s
        number = self._compose().new_id()
        properties = question(self._client.client_id, number, limit_s)
        replied = trio.Event()
        replies: list[ReceivedMessage] = []

        def then(reply: ReceivedMessage) -> None:
            replies.append(reply)
            replied.set()

        awaited = self._client.replies
        awaited.expect(number, then)
        try:
            outcome = OneOutcome()
            sending = self._compose().special(message, selector, limit_s, outcome, properties)
            result = await self._send_one(sending, outcome)
            with patient_limit(deadline - trio.current_time()):
                await replied.wait()
        finally:
            awaited.forget(number)
        if not replies:
            raise NoReply(message.topic, result.message_id, limit_s)
        return replies[0]

    @during_block
    async def reply(self, asked: ReceivedMessage, body: bytes) -> None:
        """Send a reply to the producer of a question, as a consumer of the question.

        Args:
            asked: the question.
            body: the body of the reply.

        Raises:
            InvalidMessage: the message is no question.
            RequestRefused: the producer is gone, or waits no longer.
            RemotingError, NoMaster, RouteNotFound, NameServersUnreachable: no broker took it.
        """
        check_kind("Producer", "asked", asked, ReceivedMessage, "the question, a ReceivedMessage")
        check_kind("Producer", "body", body, (bytes, bytearray, memoryview), "bytes")
        self._opened()
        queue, command = reply_to(asked, bytes(body))
        await call_master(self._client, queue, command, "take a reply")

    @renamed_arguments(timeout_seconds="timeout_s")
    @asynccontextmanager
    async def transaction(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Transaction]:
        """Send a message that is delivered only if the block ends without an error.

        The end of the block commits it, and an error rolls it back, unless the block has done
        either. A block that is cancelled leaves it open: then the broker asks the producer's check,
        as it does when a commit is lost.

        Args:
            message: the message. A delay begins with the commit.
            selector: chooses the queue; without it queues take turns.
            timeout_s: how long all attempts of the send may take; the producer's when None.

        Raises:
            NoTransactionCheck: this producer has no check.
            Rejected: nothing is stored, and the block is not run.
            OutcomeUnknown: it may be stored, and the block is not run: the broker asks the check.
            TransactionRefused: the block is done, but the message cannot be delivered any more.
        """
        transaction = await self.begin_transaction(message, selector=selector, timeout_s=timeout_s)
        async with decided(transaction):
            yield transaction

    @renamed_arguments(timeout_seconds="timeout_s")
    async def begin_transaction(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> Transaction:
        """Send a message that waits for `Transaction.commit`: `transaction` without a block."""
        if self._asked is None:
            self._opened()
            raise NoTransactionCheck(self.group)
        outcome = OneOutcome()
        limit_s = self._limit_s(timeout_s)
        half = {TRANSACTION_PREPARED: "true", PRODUCER_GROUP: self.group}
        sending = self._compose().special(message, selector, limit_s, outcome, half, PREPARED_FLAG)
        result = await self._send_one(sending, outcome)

        def ended(state: TransactionState) -> None:
            if self._trace is not None:
                self._trace.transaction_ended(
                    message, result.message_id, result.queue, state, from_check=False
                )

        return Transaction(self._client, self.group, result, ended)

    def _transaction_answered(self, half: ReceivedMessage, state: TransactionState) -> None:
        if self._trace is not None:
            self._trace.transaction_ended(half, half.message_id, half.queue, state, from_check=True)

    async def _send_one(self, sending: Sending, awaited: OneOutcome) -> SendResult:
        pipeline = self._opened()
        pipeline.submit(sending, pipeline.now())
        try:
            outcome = await awaited.wait()
        finally:
            pipeline.withdraw(sending)
        if isinstance(outcome, SendFailed):
            raise outcome
        return outcome

    def _compose(self) -> Composer:
        self._lifetime.check()
        if self._composer is None:
            raise self._lifetime.closed()
        return self._composer

    def _opened(self) -> SendPipeline:
        self._lifetime.check()
        if self._pipeline is None:
            raise self._lifetime.closed()
        return self._pipeline

    def _limit_s(self, timeout_s: float | None) -> float:
        if timeout_s is None:
            return self._timeout_s
        # A message that fails once it is in flight would be waited for at the end of the block.
        check_limit_s("Producer", "timeout_s", timeout_s)
        return timeout_s


def _ignore(_outcome: SendOutcome) -> None:
    pass
