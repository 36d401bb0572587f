"""A listener that holds the loop, or takes long, is named while it does."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import dledger_mq.listener_watch
from dledger_mq import (
    ConsumeFrom,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    TransactionState,
    blocking,
    for_asyncio,
)
from dledger_mq.listener_watch import BLOCKED_S, CHECK_S, LOG_S, ListenerWatch
from remoting.bodies.message_queue import MessageQueue
from tests.dledger_mq.scripted_cluster import ScriptedBroker, ScriptedNames, start, until

MESSAGE = ReceivedMessage(MessageQueue("T", "a", 0), 7, b"x", {"UNIQ_KEY": "ID7"})
AGAIN_S = LOG_S + 1


@pytest.fixture(autouse=True)
def _loud(caplog: pytest.LogCaptureFixture) -> None:
    """All other tests have it quiet."""
    caplog.set_level(logging.WARNING, "dledger_mq.listener_watch")


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0.01)


class Held:
    """A watch whose clock the test moves, of a loop that says nothing while it is held."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.watch = ListenerWatch(lambda: self.now_s)
        self.watch._thread_id = threading.get_ident()

    def hold(self, for_s: float) -> None:
        self.now_s += for_s
        self.watch.check_loop()


def this_line() -> int:
    return sys._getframe(1).f_lineno


async def test_a_listener_that_blocks_is_named_with_its_line_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held, lines = Held(), list[int]()

    def driver() -> None:
        held.hold(BLOCKED_S + CHECK_S)

    async def listener(_messages: list[ReceivedMessage]) -> None:
        lines.append(this_line() + 1)
        driver()
        driver()
        held.now_s += LOG_S

    await held.watch.call(listener, [MESSAGE], "g", 10.0, 0.0)
    await held.watch.call(listener, [MESSAGE], "g", 10.0, 0.0)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2, "once a minute"
    assert f"the listener {__name__}.{listener.__qualname__} at {__file__}:{lines[0]}" in texts[0]
    assert "has held the loop of this client for 1.0 s" in texts[0]
    assert f"in {ListenerWatch.__module__}.{ListenerWatch.check_loop.__qualname__}," in texts[0], (
        "what it has called"
    )


async def test_a_short_step_and_a_wait_for_the_network_are_no_hold(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = Held()
    held.hold(BLOCKED_S + CHECK_S - 0.01)
    assert not caplog.records
    loop = threading.Thread(target=trio.run, args=(trio.sleep, 0.5))
    loop.start()
    assert loop.ident is not None
    held.watch._thread_id = loop.ident
    await trio.sleep(0.1)  # its loop waits for the network meanwhile
    held.hold(BLOCKED_S)
    loop.join()
    assert not caplog.records


async def test_other_code_that_holds_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    held = Held()
    held.hold(BLOCKED_S + CHECK_S)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"this code {__name__}.Held.hold at {__file__}:")


async def test_a_thread_looks_while_a_client_is_open_and_ends_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = threading.Event()
    monkeypatch.setattr(ListenerWatch, "check_loop", lambda _watch: looked.set())
    monkeypatch.setattr(dledger_mq.listener_watch, "CHECK_S", 0.01)
    for _ in range(2):
        looked.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ListenerWatch().run)
            await trio.to_thread.run_sync(looked.wait, 10)
            nursery.cancel_scope.cancel()
        await until(lambda: not [one for one in threading.enumerate() if "loop-checks" in one.name])


async def slow_in_trio(_given: Any) -> None:
    await trio.sleep(200)


async def test_a_call_that_takes_long_is_named_while_it_does(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = ListenerWatch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        began = trio.current_time()
        nursery.start_soon(watch.call, slow_in_trio, [MESSAGE, MESSAGE], "g", 10.0, began)
        await trio.sleep(10 - CHECK_S)
        assert not caplog.records
        await trio.sleep(2 * CHECK_S)
        (record,) = caplog.records
        text = record.getMessage()
        line = slow_in_trio.__code__.co_firstlineno + 1
        assert text.startswith(
            f"the listener {__name__}.slow_in_trio of group g has worked on message ID7 of T "
            f"and 1 more for 10 s at {__file__}:{line}"
        )
        await trio.sleep(AGAIN_S)
        assert len(caplog.records) == 2, "once a minute"
        nursery.cancel_scope.cancel()


async def test_a_check_that_takes_long_is_named(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(_message: ReceivedMessage) -> TransactionState:
        await trio.sleep(30)
        return TransactionState.COMMIT

    watch = ListenerWatch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        assert (
            await watch.call(check, MESSAGE, "g", 10.0, trio.current_time())
            is TransactionState.COMMIT
        )
        nursery.cancel_scope.cancel()
    assert "check of group g has worked on message ID7 of T for 10 s" in caplog.text


def test_a_listener_that_blocks_in_a_thread_or_in_asyncio_is_named_with_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    began, may_end = threading.Event(), threading.Event()

    def plain(_messages: list[ReceivedMessage]) -> None:
        began.set()
        assert may_end.wait(10)

    async def of_asyncio(_messages: list[ReceivedMessage]) -> None:
        plain(_messages)

    async def tell(listener: Any) -> None:
        watch = ListenerWatch()
        async with trio.open_nursery() as nursery:
            now = trio.current_time()
            nursery.start_soon(watch.call, listener, [MESSAGE], "g", 0.0, now)
            await trio.to_thread.run_sync(began.wait, 10)
            watch.log_slow_calls(trio.current_time())
            may_end.set()

    async def in_asyncio() -> None:
        listener = for_asyncio.listener(of_asyncio)
        await asyncio.to_thread(trio.run, tell, listener)

    line = plain.__code__.co_firstlineno + 2
    trio.run(tell, blocking.listener(plain))
    assert f"plain of group g has worked on message ID7 of T for 0 s at {__file__}:{line}" in (
        caplog.text
    )
    began.clear()
    may_end.clear()
    line = of_asyncio.__code__.co_firstlineno + 1
    asyncio.run(in_asyncio())
    assert f"of_asyncio of group g has worked on message ID7 of T for 0 s at {__file__}:{line}" in (
        caplog.text
    )


def push(address: str, listener: Any) -> Any:
    return PushConsumer(
        "g",
        {"A": "*", "B": "*"},
        listener,
        nameservers=address,
        consume_from=ConsumeFrom.FIRST,
        options=PushOptions(concurrency=8, close_timeout_s=0),
    )


async def test_a_topic_whose_messages_take_long_leaves_calls_to_the_others(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    async def listener(messages: list[ReceivedMessage]) -> None:
        heard.append(messages[0].topic)
        if messages[0].topic == "A":
            await trio.sleep_forever()

    names, broker = ScriptedNames(), ScriptedBroker()
    async with trio.open_nursery() as nursery:
        for peer in (names, broker):
            await start(nursery, peer)
        for topic in "AB":
            names.set_route(topic, broker.address, queues=4)
        for number in range(40):
            broker.put("A", number % 4, b"slow")
        async with push(names.address, listener) as consumer:
            await consumer.ready()
            await trio.sleep(1)
            assert heard == ["A"] * 7, "all calls but one"
            for _ in range(3):
                broker.put("B", 0, b"quick")
            await trio.sleep(1)
            assert heard[7:] == ["B"] * 3
            await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert "listener of group g has worked on message" in caplog.text


async def test_queues_of_a_topic_that_had_its_calls_go_on_when_one_ends(clock: MockClock) -> None:
    heard: list[bytes] = []

    async def listener(messages: list[ReceivedMessage]) -> None:
        heard.append(messages[0].body)
        await trio.sleep(1)

    names, broker = ScriptedNames(), ScriptedBroker()
    async with trio.open_nursery() as nursery:
        for peer in (names, broker):
            await start(nursery, peer)
        names.set_route("A", broker.address, queues=8)
        names.set_route("B", broker.address, queues=1)
        for number in range(8):
            broker.put("A", number, b"%d" % number)
        async with push(names.address, listener):
            await until(lambda: len(heard) == 8)
        nursery.cancel_scope.cancel()
    assert sorted(heard) == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize(
    ("topics", "concurrency", "most"),
    [(1, 20, None), (2, 20, 19), (9, 20, 15), (2, 1, None), (2, 3, None)],
)
async def test_how_many_calls_a_topic_leaves_to_others(
    topics: int, concurrency: int, most: int | None
) -> None:
    async def listener(_messages: list[ReceivedMessage]) -> None:
        """There are no messages."""

    consumer = PushConsumer(
        "g",
        [f"T{number}" for number in range(topics)],
        listener,
        nameservers="127.0.0.1:1",
        options=PushOptions(concurrency=concurrency),
    )
    consumer._prepare()
    assert consumer._most_of_a_topic() == most
