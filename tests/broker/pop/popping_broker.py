"""A consumer that pops, and a broker whose clock the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from remoting.bodies.pop import AckedPop, encode_batch_ack
from remoting.message.record import MessageRecord, decode_records
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.broker.one_broker import START_MS, Client, Clock, running_broker


class Popped(NamedTuple):
    """A message, and the handle that its client would have made."""

    record: MessageRecord
    handle: str

    @property
    def body(self) -> bytes:
        return self.record.body


class PopClient:
    """A consumer that pops as Java's does."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.client = client
        self.clock = clock

    def at(self, at_s: float) -> None:
        """Let it be so late."""
        self.clock.now_ms = START_MS + int(at_s * 1000)

    async def send(self, *bodies: bytes, queue_id: int = 0, **more: Any) -> None:
        for body in bodies:
            assert (await self.client.send("T", body, queue_id, **more)).code == 0

    async def ask(self, **more: Any) -> Command:
        fields: dict[str, Any] = {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 60_000,
            "pollTime": 0,
            "bornTime": self.clock.now_ms,
            "initMode": 0,
        }
        return await self.client.ask(RequestCode.POP_MESSAGE, **{**fields, **more})

    async def pop(self, **more: Any) -> list[Popped]:
        reply = await self.ask(**more)
        assert reply.code in (0, 210), reply
        return popped(reply)

    async def bodies(self, **more: Any) -> list[bytes]:
        return [one.body for one in await self.pop(**more)]

    async def ack(self, message: Popped, **more: Any) -> Command:
        return await self.client.ask(RequestCode.ACK_MESSAGE, **{**shown(message), **more})

    async def ack_batch(self, messages: list[Popped]) -> Command:
        pops = [
            AckedPop(
                "g",
                "T",
                one.record.queue_id,
                int(one.handle.split()[1]),
                [one.record.queue_offset],
            )
            for one in messages
        ]
        body = encode_batch_ack("broker-a", pops)
        return await self.client.ask(RequestCode.BATCH_ACK_MESSAGE, body)

    async def hide(self, message: Popped, invisible_ms: int, **more: Any) -> Command:
        fields = {**shown(message), "invisibleTime": invisible_ms, **more}
        return await self.client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **fields)

    async def committed(self, queue_id: int = 0) -> int:
        reply = await self.client.ask(14, consumerGroup="g", topic="T", queueId=queue_id)
        return reply.integer("offset")


def shown(message: Popped) -> dict[str, Any]:
    """The fields by which a consumer shows what a request is about."""
    return {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": message.record.queue_id,
        "offset": message.record.queue_offset,
        "extraInfo": message.handle,
    }


def popped(reply: Command) -> list[Popped]:
    """The messages of a reply."""
    if reply.code:
        return []
    records = decode_records(reply.body)
    kind, queue_id, first = reply.text("startOffsetInfo").split(" ")
    assert reply.text("msgOffsetInfo") == (
        f"{kind} {queue_id} {','.join(str(record.queue_offset) for record in records)}"
    )
    assert {record.queue_id for record in records} == {int(queue_id)}
    return [
        Popped(
            record,
            f"{first} {reply.text('popTime')} {reply.text('invisibleTime')} "
            f"{reply.text('reviveQid')} {kind} broker-a {queue_id} {record.queue_offset}",
        )
        for record in records
    ]


@asynccontextmanager
async def popping(
    directory: Path, *, clock: Clock | None = None, **more: Any
) -> AsyncIterator[PopClient]:
    clock = clock or Clock()
    async with running_broker(directory, clock=clock, **more) as (broker, nursery):
        yield PopClient(Client(nursery, str(broker.config.address)), clock)
