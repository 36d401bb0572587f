"""`python -m bench.client_rates`: how fast one process sends and consumes with `dledger_mq`."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import trio
from rich.console import Console
from rich.table import Table

from bench.mq_group import START_TIMEOUT_S, mq_group
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


async def _single(producer: Producer, body: bytes, in_flight: int, seconds: float) -> float:
    """So many tasks, each of which sends one message after the other."""
    sent = 0

    async def send() -> None:
        nonlocal sent
        while True:
            await producer.send(Message(_TOPIC, body))
            sent += 1

    async with trio.open_nursery() as nursery:
        for _ in range(in_flight):
            nursery.start_soon(send)
        await trio.sleep(seconds / 4)
        sent, began = 0, time.perf_counter()
        await trio.sleep(seconds)
        rate = sent / (time.perf_counter() - began)
        nursery.cancel_scope.cancel()
    return rate


async def _tasks(producer: Producer, body: bytes, count: int) -> float:
    """So many tasks at once, each of which sends one message."""
    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(producer.send, Message(_TOPIC, body))
    return count / (time.perf_counter() - began)


async def _many(producer: Producer, body: bytes, count: int) -> float:
    messages = [Message(_TOPIC, body)] * count
    began = time.perf_counter()
    await producer.send_many(messages)
    return count / (time.perf_counter() - began)


async def _batches(producer: Producer, body: bytes, size: int, seconds: float) -> float:
    """Sixteen tasks that send batches of their own making."""
    sent = 0
    batch = [Message(_TOPIC, body)] * size

    async def send() -> None:
        nonlocal sent
        while True:
            await producer.send_batch(batch)
            sent += size

    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(send)
        await trio.sleep(seconds / 4)
        sent, began = 0, time.perf_counter()
        await trio.sleep(seconds)
        rate = sent / (time.perf_counter() - began)
        nursery.cancel_scope.cancel()
    return rate


async def _pull(client: Client) -> float:
    """One consumer that reads all queues at once, with pulls of 32 messages."""
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
    """One consumer whose listener only counts, in calls of 32 messages."""
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
    """How much is measured."""

    rounds: int
    seconds: float
    sent_bytes: int
    at_once: int
    consumed: int
    consumed_bytes: int


class Rates:
    """What was measured, by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[float]] = {}

    async def add(self, name: str, measuring: Awaitable[float]) -> None:
        """Note one more rate."""
        self.by_name.setdefault(name, []).append(await measuring)


async def _measure(nameserver: str, sizes: Sizes, rates: Rates) -> None:
    async with Client(nameserver) as client:
        async with Producer("writers", client=client) as producer:
            await _until_served(producer)
            small = bytes(sizes.consumed_bytes)
            await producer.send_many([Message(_CONSUMED, small)] * sizes.consumed)
            body = os.urandom(sizes.sent_bytes)
            for _ in range(sizes.rounds):
                for in_flight in (1, 16, 256, 1000):
                    single = _single(producer, body, in_flight, sizes.seconds)
                    await rates.add(f"send, {in_flight} tasks", single)
                tasks = _tasks(producer, body, sizes.at_once)
                await rates.add(f"send, {sizes.at_once} tasks of one message", tasks)
                await rates.add("send_many", _many(producer, body, sizes.at_once))
                for size in (32, 256):
                    batches = _batches(producer, body, size, sizes.seconds)
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
@click.option("--rounds", default=3, show_default=True, help="Of everything.")
@click.option("--seconds", default=2.0, show_default=True, help="Of each measurement by time.")
@click.option("--body-bytes", default=1024, show_default=True, help="Of each message sent.")
@click.option("--at-once", default=20_000, show_default=True, help="Messages sent at once.")
@click.option("--consumed", default=200_000, show_default=True, help="Messages to consume.")
@click.option("--consumed-bytes", default=256, show_default=True, help="Of each of them.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help="On the disk to measure; default: a new folder here.",
)
def main(
    rounds: int,
    seconds: float,
    body_bytes: int,
    at_once: int,
    consumed: int,
    consumed_bytes: int,
    folder: Path | None,
) -> None:
    """Send and consume from one process, with a group of three brokers beside it."""
    rates = Rates()
    sizes = Sizes(rounds, seconds, body_bytes, at_once, consumed, consumed_bytes)
    with (
        tempfile.TemporaryDirectory(prefix="rates-", dir=folder or Path.cwd()) as made,
        mq_group(Path(made) / "group") as group,
    ):
        trio.run(_measure, group.nameserver, sizes, rates)
    table = Table(title=f"messages a second: median of {rounds}, and the best")
    for name in ("way", "median", "best"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for name, values in rates.by_name.items():
        table.add_row(name, f"{statistics.median(values):,.0f}", f"{max(values):,.0f}")
    Console(width=None if sys.stdout.isatty() else 100).print(table)


if __name__ == "__main__":
    main()
