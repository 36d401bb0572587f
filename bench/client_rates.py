"""`python -m bench.client_rates`: how fast one process sends and consumes with `dledger_mq`."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import trio

from bench.mq_group import START_TIMEOUT_S, mq_group
from bench.options import COUNT, SECONDS, new_folder_option
from bench.report import show_tables
from bench.summary import Rows
from dledger.command_line.options import option
from dledger_mq import (
    Client,
    ConsumeFrom,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    SendFailed,
)

_TOPIC = "rates"
_CONSUMED = "consumed"
_MOST_PULLED = 32
_BATCHING_TASKS = 16


async def _rate(
    send: Callable[[], Awaitable[object]], tasks: int, messages: int, measured_s: float
) -> float:
    """Return the messages a second of `tasks` tasks that call `send`, which sends `messages`."""
    sent = 0

    async def go_on() -> None:
        nonlocal sent
        while True:
            await send()
            sent += messages

    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(go_on)
        await trio.sleep(measured_s / 4)
        sent, began = 0, time.perf_counter()
        await trio.sleep(measured_s)
        rate = sent / (time.perf_counter() - began)
        nursery.cancel_scope.cancel()
    return rate


async def _tasks(producer: Producer, message: Message, count: int) -> float:
    """Start `count` tasks at once that send one message each."""
    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(producer.send, message)
    return count / (time.perf_counter() - began)


async def _many(producer: Producer, message: Message, count: int) -> float:
    messages = [message] * count
    began = time.perf_counter()
    await producer.send_many(messages)
    return count / (time.perf_counter() - began)


async def _pull(client: Client) -> float:
    """Read all queues at once, with pulls of 32 messages."""
    pulled = 0

    async def read(queue: MessageQueue) -> None:
        nonlocal pulled
        offset = 0
        while True:
            result = await consumer.pull(queue, offset, most=_MOST_PULLED)
            if result.status is not PullStatus.FOUND:
                return
            for message in result.messages:
                if not message.body:
                    raise click.ClickException("a message has lost its body")
            pulled += len(result.messages)
            offset = result.next_offset

    async with PullConsumer("pulling", client=client) as consumer:
        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for queue in await consumer.queues(_CONSUMED):
                nursery.start_soon(read, queue)
        return pulled / (time.perf_counter() - began)


async def _push(client: Client, group: str, count: int) -> float:
    """Consume with a listener that only counts, in calls of 32 messages."""
    seen, first_at, done = 0, 0.0, trio.Event()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal seen, first_at
        first_at = first_at or time.perf_counter()
        for message in messages:
            seen += bool(message.body)
        if seen >= count:
            done.set()

    async with PushConsumer(
        group,
        [_CONSUMED],
        listener,
        client=client,
        consume_from=ConsumeFrom.FIRST,
        options=PushOptions(batch_size=_MOST_PULLED),
    ):
        await done.wait()
        return seen / (time.perf_counter() - first_at)


@dataclass(frozen=True)
class Sizes:
    rounds: int
    measured_s: float
    sent_bytes: int
    at_once: int
    consumed: int
    consumed_bytes: int


class Rates:
    def __init__(self) -> None:
        self.by_name: dict[str, list[float]] = {}

    async def add(self, name: str, measuring: Awaitable[float]) -> None:
        self.by_name.setdefault(name, []).append(await measuring)


async def _measure(nameserver: str, sizes: Sizes, rates: Rates) -> None:
    async with Client(nameserver) as client:
        async with Producer("writers", client=client) as producer:
            await _until_served(producer)
            small = bytes(sizes.consumed_bytes)
            await producer.send_many([Message(_CONSUMED, small)] * sizes.consumed)
            message = Message(_TOPIC, os.urandom(sizes.sent_bytes))
            for _ in range(sizes.rounds):
                for in_flight in (1, 16, 256, 1000):
                    single = _rate(partial(producer.send, message), in_flight, 1, sizes.measured_s)
                    await rates.add(f"send, {in_flight} tasks", single)
                tasks = _tasks(producer, message, sizes.at_once)
                await rates.add(f"send, {sizes.at_once} tasks of one message", tasks)
                await rates.add("send_many", _many(producer, message, sizes.at_once))
                for size in (32, 256):
                    send = partial(producer.send_batch, [message] * size)
                    batches = _rate(send, _BATCHING_TASKS, size, sizes.measured_s)
                    await rates.add(f"send_batch of {size}", batches)
        for number in range(sizes.rounds):
            await rates.add("pull", _pull(client))
            await rates.add("push", _push(client, f"pushed-{number}", sizes.consumed))


async def _until_served(producer: Producer) -> None:
    with trio.move_on_after(START_TIMEOUT_S):
        while True:
            try:
                for topic in (_TOPIC, _CONSUMED):
                    await producer.send(Message(topic, b"first"))
            except SendFailed:
                await trio.sleep(0.1)
            else:
                return
    raise click.ClickException("the group has no leader")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@option("--rounds", "Of everything.", default=3, type=COUNT)
@option("--seconds", "measured_s", "Of each measurement by time.", default=2.0, type=SECONDS)
@option("--body-bytes", "Of each message sent.", default=1024, type=COUNT)
@option("--at-once", "Messages sent at once.", default=20_000, type=COUNT)
@option("--consumed", "Messages to consume.", default=200_000, type=COUNT)
@option("--consumed-bytes", "Of each of them.", default=256, type=COUNT)
@new_folder_option
def main(
    rounds: int,
    measured_s: float,
    body_bytes: int,
    at_once: int,
    consumed: int,
    consumed_bytes: int,
    folder: Path | None,
) -> None:
    """Send and consume from one process, with a group of three brokers beside it."""
    rates = Rates()
    sizes = Sizes(rounds, measured_s, body_bytes, at_once, consumed, consumed_bytes)
    with (
        tempfile.TemporaryDirectory(prefix="rates-", dir=folder or Path.cwd()) as made,
        mq_group(Path(made) / "group") as group,
    ):
        trio.run(_measure, group.nameserver, sizes, rates)
    cells = [
        [name, f"{statistics.median(values):,.0f}", f"{max(values):,.0f}"]
        for name, values in rates.by_name.items()
    ]
    title = f"messages a second: median of {rounds}, and the best"
    show_tables([Rows(title, ["way", "median", "best"], cells)])


if __name__ == "__main__":
    main()
