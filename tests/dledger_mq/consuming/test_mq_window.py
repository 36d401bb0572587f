"""A producer's window: what has no room waits in its order, and outcomes stay exact."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dledger_mq import (
    Message,
    OutcomeUnknown,
    Producer,
    Rejected,
    SendOutcome,
    SendResult,
    SomeFailed,
    WindowFull,
)
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.dledger_mq.scripted_cluster import ScriptedBroker, ScriptedNames, start, until

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0.01)


class SlowBroker(ScriptedBroker):
    """Stores and answers a message only when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.unanswered: list[tuple[Connection, Command]] = []
        self.answers[SEND] = self._keep

    def _keep(self, connection: Connection, command: Command) -> None:
        self.unanswered.append((connection, command))

    def answer(self) -> None:
        """Answer the oldest message."""
        connection, command = self.unanswered.pop(0)
        connection.send(self.store_message(connection, command))

    def bodies(self) -> list[bytes]:
        """What producers have sent, in its order."""
        return [command.body for command in self.asked(SEND)]


@asynccontextmanager
async def sending(
    max_in_flight: int, timeout_s: float = 3.0
) -> AsyncIterator[tuple[SlowBroker, Producer]]:
    names, broker = ScriptedNames(), SlowBroker()
    async with trio.open_nursery() as nursery:
        for peer in (names, broker):
            await start(nursery, peer)
        names.set_route("T", broker.address)
        async with Producer(
            "g",
            nameservers=names.address,
            max_in_flight=max_in_flight,
            timeout_s=timeout_s,
            batching=None,  # one request for each message, so that each is answered by itself
        ) as producer:
            yield broker, producer
        nursery.cancel_scope.cancel()


async def answer_each_second(broker: SlowBroker) -> None:
    while True:
        await trio.sleep(1)
        if broker.unanswered:
            broker.answer()


def messages(count: int) -> list[Message]:
    return [Message("T", b"%d" % number) for number in range(count)]


async def test_the_time_of_each_message_begins_when_its_sending_does(clock: MockClock) -> None:
    async with sending(max_in_flight=2) as (broker, producer), trio.open_nursery() as nursery:
        nursery.start_soon(answer_each_second, broker)
        began = trio.current_time()
        results = await producer.send_many(messages(20))
        assert trio.current_time() - began >= 20, "seven times the time of one message"
        nursery.cancel_scope.cancel()
    assert [result.attempts for result in results] == [1] * 20
    assert broker.bodies() == [one.body for one in messages(20)]


async def test_messages_that_wait_while_no_answer_comes_are_certainly_not_sent(
    clock: MockClock,
) -> None:
    async with sending(max_in_flight=2) as (broker, producer):
        began = trio.current_time()
        with pytest.raises(SomeFailed) as caught:
            await producer.send_many(messages(1000))
        assert trio.current_time() - began < 8, "not 500 times the time of one message"
    kinds = Counter(type(outcome) for outcome in caught.value.outcomes)
    sent = set(broker.bodies())
    assert len(sent) <= 6
    assert kinds == {OutcomeUnknown: len(sent), Rejected: 1000 - len(sent)}
    for number, outcome in enumerate(caught.value.outcomes):
        assert isinstance(outcome, OutcomeUnknown) == (b"%d" % number in sent)


async def test_a_send_that_waits_gives_up_when_no_answer_comes(clock: MockClock) -> None:
    errors: list[Rejected] = []

    async def give_up(producer: Producer, timeout_s: float) -> None:
        with pytest.raises(Rejected, match="no broker has answered") as caught:
            await producer.send(Message("T", b"late"), timeout_s=timeout_s)
        errors.append(caught.value)

    async with sending(max_in_flight=1, timeout_s=30) as (broker, producer):
        async with trio.open_nursery() as nursery:
            producer.send_nowait(Message("T", b"first"), lambda _outcome: None)
            began = trio.current_time()
            nursery.start_soon(give_up, producer, 2.0)
            nursery.start_soon(give_up, producer, 1.0)
        assert 2 <= trio.current_time() - began < 3
        broker.answer()
    assert broker.bodies() == [b"first"]
    assert [error.attempts for error in errors] == [0, 0]


async def test_an_outcome_wakes_only_the_tasks_that_may_go() -> None:
    class Steps(trio.abc.Instrument):
        count = 0

        def before_task_step(self, _task: trio.lowlevel.Task) -> None:
            self.count += 1

    steps, count = Steps(), 600
    results: list[SendResult] = []

    async with sending(max_in_flight=8) as (broker, producer):
        broker.answers[SEND] = broker.store_message

        async def send() -> None:
            results.append(await producer.send(Message("T", b"x")))

        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(send)
            await trio.lowlevel.checkpoint()
            trio.lowlevel.add_instrument(steps)
        trio.lowlevel.remove_instrument(steps)
    assert len(results) == count
    assert steps.count < 10 * count, "each task wakes for its own outcome only"


async def test_tasks_send_in_the_order_of_their_calls() -> None:
    async with sending(max_in_flight=2) as (broker, producer):

        async def send(body: bytes) -> None:
            await producer.send(Message("T", body))

        async with trio.open_nursery() as nursery:
            for one in messages(30):
                nursery.start_soon(send, one.body)
                await trio.testing.wait_all_tasks_blocked()
            for _ in range(30):
                await until(lambda: bool(broker.unanswered))
                broker.answer()
    assert broker.bodies() == [one.body for one in messages(30)]


async def test_a_cancelled_send_that_waits_is_not_sent_and_holds_up_no_other() -> None:
    async with sending(max_in_flight=1) as (broker, producer), trio.open_nursery() as nursery:
        producer.send_nowait(Message("T", b"first"), lambda _outcome: None)
        await until(lambda: bool(broker.unanswered))
        scopes = trio.CancelScope(), trio.CancelScope()

        async def send_and_cancel() -> None:
            with scopes[0]:
                await producer.send(Message("T", b"cancelled"))

        async def send_many_and_cancel() -> None:
            with scopes[1]:
                await producer.send_many([Message("T", b"cancelled, too")])

        nursery.start_soon(send_and_cancel)
        nursery.start_soon(send_many_and_cancel)
        await wait_all_tasks_blocked(0.01)
        nursery.start_soon(producer.send, Message("T", b"last"))
        await wait_all_tasks_blocked(0.01)
        for scope in scopes:
            scope.cancel()
        await wait_all_tasks_blocked(0.01)
        broker.answer()
        await until(lambda: bool(broker.unanswered))
        broker.answer()
    assert broker.bodies() == [b"first", b"last"]


async def test_a_message_that_does_not_wait_may_not_overtake_one_that_does() -> None:
    async with sending(max_in_flight=1) as (broker, producer), trio.open_nursery() as nursery:
        producer.send_nowait(Message("T", b"first"), lambda _outcome: None)
        nursery.start_soon(producer.send, Message("T", b"waits"))
        await until(lambda: bool(broker.unanswered))
        with pytest.raises(WindowFull):
            producer.send_nowait(Message("T", b"overtakes"), lambda _outcome: None)
        broker.answer()
        await until(lambda: bool(broker.unanswered))
        broker.answer()
    assert broker.bodies() == [b"first", b"waits"]


async def test_messages_that_wait_when_the_producer_is_closed_are_certainly_not_sent() -> None:
    outcomes: dict[bytes, SendOutcome] = {}

    async def send(producer: Producer, body: bytes) -> None:
        try:
            outcomes[body] = await producer.send(Message("T", body))
        except (OutcomeUnknown, Rejected) as error:
            outcomes[body] = error

    async with trio.open_nursery() as nursery:

        async def use() -> None:
            async with sending(max_in_flight=1) as (broker, producer):
                nursery.start_soon(send, producer, b"sent")
                await until(lambda: bool(broker.unanswered))
                nursery.start_soon(send, producer, b"waits")
                await wait_all_tasks_blocked(0.01)
                raise KeyError

        with pytest.RaisesGroup(KeyError):
            await use()
    assert {body: type(outcome) for body, outcome in outcomes.items()} == {
        b"sent": OutcomeUnknown,
        b"waits": Rejected,
    }


async def test_a_callback_that_fails_is_logged_and_harms_no_other_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcomes: list[SendOutcome] = []

    def fail(_outcome: SendOutcome) -> None:
        raise RuntimeError("callback broke")

    async with sending(max_in_flight=2) as (broker, producer):
        broker.answers[SEND] = broker.store_message
        # No broker is asked for these: their outcome comes in the task that serves all messages.
        for _ in range(2):
            producer.send_nowait(Message("T", b"a"), fail, selector=lambda queues, _: queues[9])
        await producer.send(Message("T", b"b"))
        producer.send_nowait(Message("T", b"c"), outcomes.append)
    assert [type(outcome) for outcome in outcomes] == [SendResult]
    assert caplog.text.count("callback broke") >= 2


async def test_when_one_that_has_no_room_is_cancelled_those_behind_it_that_have_are_sent() -> None:
    async with sending(max_in_flight=100) as (broker, producer), trio.open_nursery() as nursery:
        assert producer._pipeline is not None
        producer._pipeline._max_bytes = 200_000
        bodies = [Random(0).randbytes(size) for size in (100_000, 180_000, 10_000)]
        nursery.start_soon(producer.send, Message("T", bodies[0]))
        await until(lambda: len(broker.unanswered) == 1)
        async with trio.open_nursery() as waiting:
            waiting.start_soon(producer.send, Message("T", bodies[1]))
            await wait_all_tasks_blocked()
            nursery.start_soon(producer.send, Message("T", bodies[2]))
            await wait_all_tasks_blocked()
            waiting.cancel_scope.cancel()
        await until(lambda: len(broker.unanswered) == 2)
        assert len(broker.bodies()) == 2
        broker.answer()
        broker.answer()


async def test_nothing_is_counted_of_messages_that_have_their_outcomes() -> None:
    def counted() -> dict[str, int]:
        kept = {"_turns"}  # with which queue the next one begins
        return {
            name: len(value) if isinstance(value, dict | set | list) else value
            for name, value in vars(producer._pipeline).items()
            if isinstance(value, dict | set | list | int) and name not in kept
        }

    async with sending(max_in_flight=3) as (broker, producer):
        before = counted()
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for message in messages(5):
                    nursery.start_soon(producer.send, message)
                await until(lambda: len(broker.unanswered) == 3)
                with trio.move_on_after(0.05):
                    await producer.send(Message("T", b"given up"))
                for _ in range(5):
                    await until(lambda: bool(broker.unanswered))
                    broker.answer()
            assert counted() == before
