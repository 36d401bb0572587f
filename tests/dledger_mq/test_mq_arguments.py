"""What a program gives a call by mistake is told in one line, and by an error of the package."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import trio

from dledger_mq import (
    Admin,
    Batching,
    Client,
    ConsumeFrom,
    ConsumerGroup,
    InvalidArgument,
    InvalidMessage,
    InvalidOptions,
    Message,
    MessageQueue,
    MessagingError,
    PopConsumer,
    PopOptions,
    Producer,
    PullConsumer,
    PushConsumer,
    PushOptions,
    QueueNotFound,
    ReceivedMessage,
    RequestMode,
    by_key,
    to_queue,
)
from dledger_mq.argument_checks import is_number_in
from dledger_mq.sending.selectors import chosen_queue
from remoting.wire.errors import RemotingError
from tests.dledger_mq.real_group import real_group

TOPIC: Final = "Orders"
QUEUE: Final = MessageQueue(TOPIC, "broker-a", 0)

WRONG: Final[tuple[object, ...]] = (
    *(None, True, -1, 1 << 70, 1.5, float("nan"), float("inf")),
    *("", "no such", "\x01\x02\udcff", b"\xff", [], [None], {}, {1: 2}, object()),
)

# A call that waits is not what this is about: brokers refuse an odd name in their own time.
LONG_ENOUGH_S: Final = 0.5
AT_ONCE: Final = 64

# What documentation says of these two.
VALUE_ERRORS: Final = {"PushConsumer.model", "PushConsumer.consume_from"}


async def listener(_messages: object) -> None: ...


def given(received: ReceivedMessage, sent: object) -> Mapping[str, object]:
    """What each parameter gets that has no default and is not wrong."""
    return {
        **{"topic": TOPIC, "topics": TOPIC, "group": "readers", "queue": QUEUE, "offset": 0},
        **{"nameservers": "127.0.0.1:1", "listener": listener, "name": "readers", "key": "k"},
        **{"message": Message(TOPIC, b"x"), "messages": [Message(TOPIC, b"x")]},
        **{"asked": received, "body": b"x", "result": sent, "callback": lambda _outcome: None},
        **{"timestamp_ms": 0, "client_id": "c", "offset_message_id": "x", "target": "others"},
        **{"message_id": "x", "values": {}, "mode": RequestMode(TOPIC, "readers", "PULL", 0)},
        **{"timeout_s": 0.3},
    }


def wrong_calls(
    of: str, call: Callable[..., Any], known: Mapping[str, object]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A call for each wrong value of each parameter, and its name."""
    parameters = [one for name, one in inspect.signature(call).parameters.items() if name != "self"]
    needed = {
        one.name: known[one.name]
        for one in parameters
        if one.default is one.empty or one.name in ("nameservers", "timeout_s")
    }
    for one in parameters:
        for value in WRONG:
            if one.default is not one.empty and value is one.default:
                continue
            yield f"{of}.{one.name}", partial(call, **{**needed, one.name: value})


def complaint(what: str, call: Callable[[], Any], error: Exception) -> str | None:
    if isinstance(error, MessagingError | RemotingError) and "\n" not in str(error):
        return None
    if isinstance(error, ValueError) and what in VALUE_ERRORS:
        return None
    return f"{what}: {call}: {error!r}"


def test_nothing_is_made_of_wrong_arguments_but_an_error_of_the_package(tmp_path: Path) -> None:
    known = given(ReceivedMessage(QUEUE, 0, b""), None)
    kinds = (Admin, Batching, Client, PopConsumer, PopOptions, Producer, PullConsumer)
    complaints = []
    for kind in (*kinds, PushConsumer, PushOptions, by_key, to_queue):
        for what, call in wrong_calls(kind.__name__, kind, known):
            try:
                call()
            except Exception as error:
                complaints.append(complaint(what, call, error))
    assert [one for one in complaints if one] == []


async def test_every_call_answers_wrong_arguments_by_an_error_of_the_package(
    tmp_path: Path,
) -> None:
    complaints: list[str] = []
    async with (
        real_group(tmp_path) as group,
        Producer("writers", client=group.client) as producer,
        PullConsumer("readers", client=group.client) as consumer,
    ):
        await producer.send(Message(TOPIC, b"x"))
        sent = await producer.send(Message(TOPIC, b"x", delay_ms=3_600_000))
        (first, *_), places = await consumer.queues(TOPIC), trio.CapacityLimiter(AT_ONCE)
        known = {**given(ReceivedMessage(first, 0, b""), sent), "queue": first}

        async def tried(what: str, call: Callable[[], Any]) -> None:
            async with places:
                with trio.move_on_after(LONG_ENOUGH_S):
                    try:
                        made = call()
                        if inspect.isawaitable(made):
                            await made
                    except Exception as error:
                        complaints.extend(filter(None, [complaint(what, call, error)]))

        async with trio.open_nursery() as nursery:
            for of in (group.admin, ConsumerGroup(group.client, "readers"), producer, consumer):
                for name, method in inspect.getmembers(of, callable):
                    if not name.startswith("_") and name not in ("transaction", "delete_topic"):
                        its_name = f"{type(of).__name__}.{name}"
                        for what, call in wrong_calls(its_name, method, known):
                            nursery.start_soon(tried, what, call)
    assert complaints == []


@pytest.mark.parametrize("queue", [None, "Orders", (TOPIC, "broker-a", 0)])
async def test_a_pull_consumer_says_what_a_queue_is(tmp_path: Path, queue: Any) -> None:
    async with real_group(tmp_path) as group, PullConsumer("g", client=group.client) as consumer:
        for call in (
            *(consumer.first_offset, consumer.next_offset, consumer.committed),
            partial(consumer.pull, offset=0),
            partial(consumer.commit, offset=0),
            partial(consumer.offset_at, timestamp_ms=0),
        ):
            with pytest.raises(InvalidArgument, match=r"PullConsumer: queue is of type .*: give a"):
                await call(queue)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((TOPIC, "broker-a", None), "queue_id is None: give 0 to"),
        ((TOPIC, "broker-a", -1), "queue_id is -1: give 0 to"),
        ((TOPIC, None, 0), "broker_name is of type None"),
        ((None, "broker-a", 0), "topic is of type None"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_before_anything_is_sent(
    fields: tuple[Any, Any, Any], words: str
) -> None:
    queue = MessageQueue(*fields)
    with pytest.raises(MessagingError, match=words):
        to_queue(queue)


def test_a_selector_that_chooses_a_queue_without_a_number_is_told() -> None:
    queue: Any = MessageQueue(TOPIC, "broker-a", None)  # type: ignore[arg-type]
    with pytest.raises(MessagingError, match="queue_id is None: give 0 to"):
        chosen_queue(lambda _queues, _message: queue, [QUEUE], Message(TOPIC, b""))


def test_numbers_of_other_libraries_are_numbers() -> None:
    assert is_number_in(np.int64(5), 1, 9, whole=True)
    assert is_number_in(np.float32(0.5), 0, 1)
    assert not is_number_in(np.float64(5), 1, 9, whole=True)
    assert not is_number_in(np.float64("nan"), 0, 9)


@pytest.mark.parametrize("hold_s", [float("nan"), float("inf"), -1, "1", None])
async def test_a_pull_is_not_held_for_what_is_no_time(hold_s: Any) -> None:
    async with PullConsumer("g", nameservers="127.0.0.1:1") as consumer:
        with pytest.raises(
            InvalidOptions, match=r"PullConsumer: hold_s is .*: give 0 to 2147483647"
        ):
            await consumer.pull(QUEUE, 0, hold_s=hold_s)


async def test_a_queue_that_is_not_there_has_no_offsets(tmp_path: Path) -> None:
    async with (
        real_group(tmp_path) as group,
        Producer("writers", client=group.client) as producer,
        PullConsumer("g", client=group.client) as consumer,
    ):
        there = (await producer.send(Message(TOPIC, b"x"))).queue
        gone = MessageQueue(TOPIC, there.broker_name, 4)
        for call in (
            *(consumer.first_offset, consumer.next_offset),
            partial(consumer.offset_at, timestamp_ms=0),
        ):
            assert await call(there) in (0, 1)
            with pytest.raises(QueueNotFound, match=r"topic 'Orders' has no queue 4 at .*: give"):
                await call(gone)
        await group.admin.create_topic(TOPIC, queues=5)
        assert await consumer.first_offset(gone) == 0


async def test_names_of_the_greatest_length_are_sent_to_and_consumed(tmp_path: Path) -> None:
    topic, group_name, came = "t" * 127, "g" * 120, trio.Event()

    async def listener(_messages: object) -> None:
        came.set()

    async with (
        real_group(tmp_path) as group,
        Producer("p" * 127, client=group.client) as producer,
    ):
        await producer.send(Message(topic, b"x"))
        consumer = PushConsumer(
            *(group_name, topic, listener),
            client=group.client,
            consume_from=ConsumeFrom.FIRST,
        )
        async with consumer:
            with trio.fail_after(10):
                await came.wait()
            await consumer.commit()
        rows = await group.admin.group(group_name).progress(topic)
        assert (sum(row.consumer_offset for row in rows), sum(row.lag for row in rows)) == (1, 0)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("g" * 121, "a group's name has 1 to 120 characters, not 121"),
        ("", "a group's name has 1 to 120 characters, not 0"),
        ("my group", "a group's name holds only letters"),
        (None, "a group's name is a str, not None"),
    ],
)
def test_a_group_whose_name_no_broker_takes_is_not_made(name: Any, words: str) -> None:
    names = "127.0.0.1:1"
    for make in (
        partial(PushConsumer, name, "T", listener, nameservers=names),
        partial(PopConsumer, name, "T", listener, nameservers=names),
        partial(PullConsumer, name, nameservers=names),
        partial(Admin(nameservers=names).group, name),
    ):
        with pytest.raises(InvalidMessage, match=words):
            make()
