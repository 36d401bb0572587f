"""A producer and a client of lite topics, and a broker whose clock the test moves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio

from broker.lite.state import LITE, Lite
from broker.server import Broker
from remoting.message.properties import encode_properties
from remoting.message.record import MessageRecord, decode_records
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.broker.one_broker import START_MS, Client, Clock, running_broker

PARENT = "Chats"
GROUP = "agents"


class Given(NamedTuple):
    """A message, its lite topic, and the handle that a client would have made."""

    record: MessageRecord
    lite_topic: str
    handle: str

    @property
    def body(self) -> bytes:
        return self.record.body

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "consumerGroup": GROUP,
            "topic": PARENT,
            "queueId": 0,
            "offset": self.record.queue_offset,
            "extraInfo": self.handle,
            "liteTopic": self.lite_topic,
        }


class LiteClient:
    """Speaks as RocketMQ's proxy does for its clients."""

    def __init__(self, broker: Broker, client: Client, clock: Clock) -> None:
        self.broker = broker
        self.client = client
        self.clock = clock

    @property
    def lite(self) -> Lite:
        return self.broker.machine.state[LITE]

    def another(self, nursery: trio.Nursery) -> Client:
        """Another connection."""
        return Client(nursery, str(self.broker.config.address))

    def at(self, at_s: float) -> None:
        """Let it be so late."""
        self.clock.now_ms = START_MS + int(at_s * 1000)

    async def make(self, topic: dict[str, str] | None = None, **group: str) -> None:
        """Make the parent and the group, with these attributes."""
        attributes = {"+message.type": "LITE", **(topic or {})}
        fields = {"topic": PARENT, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        texts = ",".join(f"{name}={value}" for name, value in attributes.items())
        made = await self.client.ask(17, **fields, attributes=texts)  # type: ignore[arg-type]
        assert made.code == 0, made
        await self.make_group(GROUP, **group)

    async def make_group(self, name: str, **attributes: str) -> None:
        wanted = {"+lite.bind.topic": PARENT} | {
            f"+lite.sub.{name.replace('_', '.')}": value for name, value in attributes.items()
        }
        body = json.dumps({"groupName": name, "attributes": wanted}).encode()
        assert (await self.client.ask(200, body)).code == 0

    async def send(self, lite_topic: str, *bodies: bytes, queue_id: int = 0, **more: Any) -> None:
        for body in bodies:
            reply = await self.try_send(lite_topic, body, queue_id, **more)
            assert reply.code == 0, reply

    async def try_send(
        self, lite_topic: str, body: bytes = b"x", queue_id: int = 0, **more: Any
    ) -> Command:
        pairs = {"__LITE_TOPIC": lite_topic, "UNIQ_KEY": body.hex().upper() or "0", **more}
        properties = encode_properties(pairs).decode()
        return await self.client.send(PARENT, body, queue_id, i=properties)

    async def subscribe(
        self,
        client_id: str,
        *names: str,
        action: str = "PARTIAL_ADD",
        group: str = GROUP,
        client: Client | None = None,
        **more: Any,
    ) -> Command:
        change = {
            "action": action,
            "clientId": client_id,
            "group": group,
            "topic": PARENT,
            "liteTopicSet": names,
            **more,
        }
        body = json.dumps({"subscriptionSet": [change]}).encode()
        return await (client or self.client).ask(RequestCode.LITE_SUBSCRIPTION_CTL, body)

    async def ask(self, client_id: str = "c", **more: Any) -> Command:
        fields: dict[str, Any] = {
            "clientId": client_id,
            "consumerGroup": GROUP,
            "topic": PARENT,
            "maxMsgNum": 32,
            "invisibleTime": 60_000,
            "pollTime": 0,
            "bornTime": self.clock.now_ms,
        }
        return await self.client.ask(RequestCode.POP_LITE_MESSAGE, **{**fields, **more})

    async def pop(self, client_id: str = "c", **more: Any) -> list[Given]:
        reply = await self.ask(client_id, **more)
        assert reply.code in (0, 210), reply
        return given(reply)

    async def bodies(self, client_id: str = "c", **more: Any) -> list[bytes]:
        return [one.body for one in await self.pop(client_id, **more)]

    async def ack(self, message: Given, **more: Any) -> int:
        return (await self.client.ask(RequestCode.ACK_MESSAGE, **{**message.fields, **more})).code

    async def hide(self, message: Given, invisible_ms: int, **more: Any) -> Command:
        fields = {**message.fields, "invisibleTime": invisible_ms, **more}
        return await self.client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **fields)


def given(reply: Command) -> list[Given]:
    """The messages of a reply."""
    if reply.code:
        return []
    records = decode_records(reply.body)
    counts = reply.text("orderCountInfo").split(";")
    assert [one.reconsume_times for one in records] == list(map(int, counts))
    found: list[Given] = []
    for record in records:
        pairs = record.property_map()
        assert pairs["INNER_MULTI_QUEUE_OFFSET"] == str(record.queue_offset)
        lite_topic = pairs["__LITE_TOPIC"]
        assert pairs["INNER_MULTI_DISPATCH"] == f"%LMQ%${PARENT}${lite_topic}"
        times = " ".join(reply.text(name) for name in ("popTime", "invisibleTime", "reviveQid"))
        handle = f"0 {times} 0 broker-a 0 {record.queue_offset}"
        found.append(Given(record, lite_topic, handle))
    return found


@asynccontextmanager
async def lite_broker(
    directory: Path, *, clock: Clock | None = None, **more: Any
) -> AsyncIterator[LiteClient]:
    clock = clock or Clock()
    async with running_broker(directory, clock=clock, **more) as (broker, nursery):
        yield LiteClient(broker, Client(nursery, str(broker.config.address)), clock)
