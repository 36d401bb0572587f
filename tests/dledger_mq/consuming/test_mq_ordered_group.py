"""Ordered consumers of a real group: order per key, and one consumer a queue, through faults."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from random import Random

import pytest
import trio

from dledger_mq import (
    Admin,
    ConsumeFrom,
    ConsumeResult,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    by_key,
)
from dledger_mq.testing import Cluster, cluster

pytestmark = [pytest.mark.slow, pytest.mark.feature("F40")]

TOPIC, GROUP, QUEUES, KEYS = "Accounts", "bookkeepers", 6, 6
PATIENCE_S = 20
ENOUGH_S = 240


class Books:
    """What all consumers did together.

    Attributes:
        done: by key: the numbers in the order in which they were consumed.
        busy: the queue of each call that runs, and its consumer.
        clashes: queues that two consumers had at the same time.
    """

    def __init__(self) -> None:
        self.done: dict[str, list[int]] = {str(key): [] for key in range(KEYS)}
        self.busy: dict[MessageQueue, str] = {}
        self.clashes: list[tuple[MessageQueue, str, str]] = []
        self._random = Random(1)

    def begin(self, queue: MessageQueue, name: str) -> None:
        if queue in self.busy:
            self.clashes.append((queue, self.busy[queue], name))
        self.busy[queue] = name

    def consumer(self, group: Cluster, name: str) -> PushConsumer:
        async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            (message,) = messages
            self.begin(message.queue, name)
            try:
                await trio.sleep(self._random.uniform(0, 0.01))
                if self._random.random() < 0.02:
                    return ConsumeResult.RETRY
                self.done[message.keys].append(int(message.body))
            finally:
                del self.busy[message.queue]
            return ConsumeResult.SUCCESS

        return PushConsumer(
            GROUP,
            TOPIC,
            listener,
            nameservers=group.nameservers,
            ordered=True,
            consume_from=ConsumeFrom.FIRST,
            options=PushOptions(suspend_ms=10),
        )

    def check_order(self) -> None:
        """No number comes before the one before it: what comes again is the end of the row."""
        assert self.clashes == []
        for key, numbers in self.done.items():
            wrong = [(one, two) for one, two in pairwise([-1, *numbers]) if two > one + 1]
            assert wrong == [], f"key {key}: {numbers}"

    async def wait_for(self, last: int) -> None:
        # Filled by tasks of several consumers, and by another process.
        while any(last not in numbers for numbers in self.done.values()):  # noqa: ASYNC110
            await trio.sleep(0.05)


async def produce(producer: Producer, numbers: range, pause_s: float) -> None:
    """Send numbers of each key, each after the one before it is acknowledged."""

    async def send(key: str) -> None:
        for number in numbers:
            message = Message(TOPIC, b"%d" % number, keys=key)
            await producer.send(message, timeout_s=PATIENCE_S, selector=by_key(key))
            await trio.sleep(pause_s)

    async with trio.open_nursery() as nursery:
        for key in range(KEYS):
            nursery.start_soon(send, str(key))


async def faults(group: Cluster, books: Books) -> None:
    """Members come, leave and are cancelled; leaders die and freeze."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(books.consumer(group, "first"))
        async with books.consumer(group, "second"):
            await trio.sleep(2)
            name = await group.kill()
            await trio.sleep(2)
            await group.restart(name)
            async with books.consumer(group, "third") as third:
                await third.ready()
                name = await group.freeze()
                await trio.sleep(3)
                await group.resume(name)
                await trio.sleep(1)
        with trio.move_on_after(2):
            async with books.consumer(group, "fourth"):
                await trio.sleep_forever()  # its end is a cancellation
        name = await group.kill()
        await group.restart(name)
        assert await group.leader()
        await first.ready()


async def run(story: Callable[[Cluster, Books], Awaitable[None]], count: int) -> Books:
    books = Books()
    async with cluster() as group:
        async with Admin(nameservers=group.nameservers) as admin:
            await admin.create_topic(TOPIC, queues=QUEUES)
        async with (
            Producer("writers", nameservers=group.nameservers) as producer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(produce, producer, range(count), 0.1)
            await story(group, books)
        async with books.consumer(group, "last"):
            await books.wait_for(count - 1)
    return books


async def test_order_of_each_key_is_kept_and_one_consumer_has_a_queue_through_faults() -> None:
    with trio.fail_after(ENOUGH_S):
        books = await run(faults, 120)
    books.check_order()


OTHER_PROCESS = """
import sys, trio
from dledger_mq import ConsumeFrom, PushConsumer
group, topic, nameservers = sys.argv[1:]

async def listener(messages):
    for message in messages:
        print(message.queue.queue_id, message.keys, int(message.body), flush=True)
        await trio.sleep(0.02)

async def main():
    async with PushConsumer(group, topic, listener, nameservers=nameservers, ordered=True,
                            consume_from=ConsumeFrom.FIRST):
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.long
async def test_the_queues_of_a_killed_process_stand_still_for_a_minute_and_go_on_in_order() -> None:
    """The lock of a consumer that says nothing any more is another's after 60 s."""

    async def story(group: Cluster, books: Books) -> None:
        arguments = [GROUP, TOPIC, ";".join(group.nameservers)]
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", OTHER_PROCESS, *arguments], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        async with books.consumer(group, "here"):
            rest = b""
            lines = 0
            try:
                async for piece in process.stdout:
                    *complete, rest = (rest + piece).split(b"\n")
                    for line in complete:
                        _queue_id, key, number = line.split()
                        books.done[key.decode()].append(int(number))
                    lines += len(complete)
                    if lines > 20:
                        process.kill()
                await process.wait()
            finally:
                process.kill()
                await process.stdout.aclose()
            await group.kill()  # the new leader knows the lock of the dead consumer
            await books.wait_for(99)

    with trio.fail_after(ENOUGH_S):
        books = await run(story, 100)
    books.check_order()
