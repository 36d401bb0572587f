"""A real member of a group, a real broker and a real name server, in a thread of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import trio

import dledger
from dledger.loop_thread import LoopThread
from dledger_mq import Message, Producer, PullConsumer, ReceivedMessage
from dledger_mq.send_result import SendResult
from remoting.message.properties import CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT
from tests.dledger.running_members import lone
from tests.dledger_mq.real_group import real_group

TOPIC = "T"
BREAKS = b"break"


class Sum:
    """Adds numbers up; stops its node when told to."""

    def __init__(self) -> None:
        self.value = 0
        self.changes = dledger.Changes()

    def apply(self, entries: Sequence[dledger.Entry]) -> Sequence[object]:
        results = []
        for entry in entries:
            if entry.body == BREAKS:
                raise RuntimeError("broken on purpose")
            self.value += int(entry.body)
            self.changes.set(entry.index, ("sum",), self.value)
            results.append(self.value)
        return results

    def watched(self, path: dledger.WatchPath) -> Iterable[tuple[dledger.WatchPath, object]]:
        return [(("sum",), self.value)]

    @dledger.query
    def sum(self) -> int:
        return self.value


def machine() -> dledger.StateMachine:
    return dledger.WithSessions(Sum())


def node_config(folder: Path, group: str = "g", address: str = "") -> dledger.NodeConfig:
    """A member alone in its group, quick to lead."""
    return lone(folder, group=group, **({"peers": {"n0": address}} if address else {}))


@dataclass
class Servers:
    """What objects of all forms are opened on.

    Attributes:
        folder: of the test; members that it opens may keep their files there.
        names: the name server's address.
        peers: the members of the group that serves its log.
        received: a message of the topic, which looks like a question.
        sent: the result of a send.
        loop: the loop in which all of them run.
    """

    folder: Path
    names: str
    peers: str
    received: ReceivedMessage
    sent: SendResult
    loop: LoopThread[Any] | None = None

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Hold the servers' loop during a block, so that they answer no call."""
        assert self.loop is not None
        with held(self.loop):
            yield


@contextmanager
def held(loop: LoopThread[Any]) -> Iterator[None]:
    """A loop stands still during a block."""
    holding, released = Event(), Event()

    def hold() -> None:
        holding.set()
        released.wait(60)

    if loop.soon(hold):
        assert holding.wait(10)
    try:
        yield
    finally:
        released.set()


@asynccontextmanager
async def run_servers(folder: Path) -> AsyncIterator[Servers]:
    config = node_config(folder / "node")
    async with (
        real_group(folder / "broker") as group,
        dledger.open_node(config, machine()) as node,
        Producer("writers", client=group.client) as producer,
        PullConsumer("readers", client=group.client) as consumer,
    ):
        with trio.fail_after(20):
            await node.read()
            for _ in range(3):
                await node.append(b"1")
            sent = await producer.send(Message(TOPIC, b"first"))
            (read,) = (await consumer.pull(sent.queue, sent.queue_offset)).messages
        received = ReceivedMessage(
            read.queue,
            read.queue_offset,
            read.body,
            {CLUSTER: "DefaultCluster", CORRELATION_ID: "1", REPLY_TO_CLIENT: "nobody"},
        )
        yield Servers(folder, group.names, f"n0={config.peers['n0']}", received, sent)


@contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    """The servers in a loop of their own."""
    loop = LoopThread(lambda: run_servers(folder), "servers of the matrix")
    opened = loop.open()
    opened.loop = loop
    try:
        yield opened
    finally:
        loop.close()
