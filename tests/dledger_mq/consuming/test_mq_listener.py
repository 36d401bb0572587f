import functools
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from dledger_mq import ConsumeResult, InvalidListener, PushConsumer, ReceivedMessage
from dledger_mq.consuming.back_off import LONGEST_DELAY_S, redelivery_delay_s
from dledger_mq.listener import Listener, says_consumed
from dledger_mq.listener_watch import ListenerWatch
from remoting.bodies.message_queue import MessageQueue

Messages = list[ReceivedMessage]
MESSAGE = ReceivedMessage(MessageQueue("T", "a", 0), 0, b"x")


async def consume(messages: Messages) -> None:
    pass


async def consume_into(_place: str, messages: Messages) -> ConsumeResult:
    return ConsumeResult.SUCCESS


class Consumes:
    async def __call__(self, messages: Messages) -> None:
        pass

    async def method(self, messages: Messages) -> None:
        pass

    def blocking_method(self, messages: Messages) -> None:
        pass


class Blocks:
    def __call__(self, messages: Messages) -> None:
        pass


def decorated(listener: Listener) -> Listener:
    @functools.wraps(listener)
    def wrapper(messages: Messages) -> Awaitable[ConsumeResult | None]:
        return listener(messages)

    return wrapper


def blocking(messages: Messages) -> None:
    pass


async def generates(messages: Messages) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    "listener",
    [
        consume,
        functools.partial(consume_into, "place"),
        functools.partial(Consumes()),
        Consumes(),
        Consumes().method,
        pytest.param(decorated(consume), id="decorated"),
        lambda messages: consume_into("place", messages),
    ],
)
async def test_what_can_be_awaited_is_a_listener(listener: Listener) -> None:
    PushConsumer("g", "T", listener, nameservers=["127.0.0.1:1"])
    assert await call(listener, [MESSAGE])


@pytest.mark.parametrize(
    "listener",
    [
        blocking,
        functools.partial(blocking),
        Blocks(),
        Consumes().blocking_method,
        Consumes,
        generates,
        print,
        "a text",
    ],
)
def test_what_can_not_be_awaited_is_refused_at_once(listener: Listener) -> None:
    with pytest.raises(InvalidListener, match="async def") as caught:
        PushConsumer("g", "T", listener, nameservers=["127.0.0.1:1"])
    assert "\n" not in str(caught.value)


async def call(listener: Callable[[Messages], Awaitable[object]], messages: Messages) -> bool:
    return says_consumed(await ListenerWatch().call(listener, messages, "g", 10.0, 0.0))


def answers(value: object) -> Callable[[Messages], Awaitable[object]]:
    async def listener(messages: Messages) -> object:
        return value

    return listener


@pytest.mark.parametrize("value", [False, True, "RETRY", 0, ConsumeResult])
async def test_an_answer_that_is_none_is_named_and_no_success(value: object) -> None:
    with pytest.raises(InvalidListener) as caught:
        await call(answers(value), [MESSAGE])
    assert repr(value) in str(caught.value)


async def test_the_three_answers_are_read() -> None:
    assert await call(answers(None), [MESSAGE])
    assert await call(answers(ConsumeResult.SUCCESS), [MESSAGE])
    assert not await call(answers(ConsumeResult.RETRY), [MESSAGE])


async def test_a_lambda_that_does_not_return_an_awaitable_fails_when_it_is_called() -> None:
    with pytest.raises(InvalidListener, match="cannot be awaited"):
        await call(lambda messages: None, [MESSAGE])  # type: ignore[arg-type, return-value]


def returned(times: int, properties: dict[str, str] | None = None) -> ReceivedMessage:
    queue = MessageQueue("%RETRY%g", "a", 0)
    return ReceivedMessage(queue, 0, b"", properties or {}, reconsume_times=times)


def test_a_message_that_was_sent_back_waits_longer_each_time() -> None:
    delays = [redelivery_delay_s(returned(times)) for times in range(1, 17)]
    assert delays == [1, 2, 4, 8, 16] + [LONGEST_DELAY_S] * 11


def test_a_message_that_the_broker_delayed_does_not_wait_again() -> None:
    assert redelivery_delay_s(returned(5, {"REAL_TOPIC": "%RETRY%g"})) == 0.0
