"""A proxy on a real name server and a real broker, all in this process."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from trio.testing import memory_stream_pair

from dledger_mq import Admin, Client
from proxy.http2.limits import Limits
from proxy.http2.server import serve_connection
from proxy.server import Proxy
from proxy.wire import messages_pb2 as messages
from proxy.wire.messages_pb2 import Code
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.dledger_mq.real_group import RealGroup, real_group, wall_clock_ms
from tests.proxy.grpc_client import GrpcClient, Received

BROKER = "broker-a"


class ShiftedClock:
    """The wall clock, which a test moves ahead."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return wall_clock_ms() + self.ahead_ms


class Served:
    """A proxy, and clients of it.

    Attributes:
        proxy: itself.
    """

    def __init__(self, proxy: Proxy, nursery: trio.Nursery) -> None:
        self.proxy = proxy
        self._nursery = nursery
        self._clients = 0

    async def client(
        self,
        client_id: str | None = "",
        *,
        signs: Callable[[], Mapping[str, str]] = dict,
        peer: str = "127.0.0.9:5000",
        limits: Limits | None = None,
    ) -> GrpcClient:
        """A new connection; of a new client, unless an id is given."""
        self._clients += 1
        if client_id == "":
            client_id = f"host@{self._clients}@0@test"
        near, far = memory_stream_pair()
        serve = (far, self.proxy.answer, limits or Limits(), peer)
        self._nursery.start_soon(lambda: serve_connection(*serve, draining=self.proxy.draining))
        client = GrpcClient(near, client_id, signs)
        await self._nursery.start(client.run)
        return client


class RealProxy(Served):
    """A proxy on a real broker.

    Attributes:
        group: the name server, the broker, and clients of them.
    """

    def __init__(self, proxy: Proxy, nursery: trio.Nursery, group: RealGroup) -> None:
        super().__init__(proxy, nursery)
        self.group = group

    @property
    def admin(self) -> Admin:
        return self.group.admin

    async def topic(self, name: str, kind: str | None = None, queues: int = 1) -> str:
        """A new topic for messages of a type."""
        await self.admin.create_topic(name, queues=queues, message_type=kind)
        return name

    async def permit(self, topic: str, permission: int) -> None:
        """Let a topic of one queue be readable (4), writable (2), both or neither."""
        await self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=topic,
            readQueueNums="1",
            writeQueueNums="1",
            perm=str(permission),
            attributes="",
        )

    async def consumer_group(self, name: str, **more: Any) -> str:
        """A new consumer group, of these attributes in RocketMQ's words."""
        body = json.dumps({"groupName": name, **more}).encode()
        await self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        return name

    async def ask(self, code: int, body: bytes = b"", **fields: str) -> Command:
        """What the broker answers to a request by remoting, which it must accept."""
        address = str(self.group.broker.config.address)
        command = Command(code, dict(fields), body)
        reply = await self.group.client.remoting.request(address, command, 10)
        assert reply.code == 0, reply
        return reply

    @asynccontextmanager
    async def another(self, **more: Any) -> AsyncIterator[Served]:
        """Another proxy on the same brokers."""
        async with Client([self.group.names], **more) as client, trio.open_nursery() as nursery:
            yield Served(Proxy(client, nursery, is_user=bool(more)), nursery)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def real_proxy(directory: Path, **settings: Any) -> AsyncIterator[RealProxy]:
    settings.setdefault("clock", wall_clock_ms)
    async with real_group(directory, **settings) as group, trio.open_nursery() as nursery:
        with trio.fail_after(60):
            yield RealProxy(Proxy(group.client, nursery, is_user=False), nursery, group)
        nursery.cancel_scope.cancel()


def message(topic: str, body: bytes = b"body", **more: Any) -> messages.Message:
    """A message as clients make it; `more` are system properties."""
    made = messages.Message(body=body)
    made.topic.name = topic
    system = made.system_properties
    system.message_id = f"01{time.monotonic_ns():032X}"
    system.body_encoding = messages.Encoding.IDENTITY
    system.born_host = "made-here"
    system.born_timestamp.FromMilliseconds(wall_clock_ms())
    for name, value in more.pop("user", {}).items():
        made.user_properties[name] = value
    for name, value in more.items():
        field = getattr(system, name)
        if name == "keys":
            field.extend(value)
        elif name.endswith("timestamp") or name.endswith("duration"):
            field.FromMilliseconds(value)
        else:
            setattr(system, name, value)
    return made


def sending(*sent: messages.Message) -> messages.SendMessageRequest:
    return messages.SendMessageRequest(messages=sent)


def receiving(
    topic: str,
    group: str = "readers",
    *,
    wait_s: float = 0.0,
    invisible_s: float | None = 30.0,
    batch: int = 32,
    broker: str = BROKER,
    tag: str | None = None,
    sql: str | None = None,
    attempt: str | None = None,
    auto_renew: bool = False,
) -> messages.ReceiveMessageRequest:
    """A receive of a simple consumer; of a push consumer with `auto_renew`."""
    made = messages.ReceiveMessageRequest(batch_size=batch, auto_renew=auto_renew)
    made.group.name = group
    made.message_queue.topic.name = topic
    made.message_queue.broker.name = broker
    made.message_queue.id = -1
    made.long_polling_timeout.FromMilliseconds(round(wait_s * 1000))
    if invisible_s is not None and not auto_renew:
        made.invisible_duration.FromMilliseconds(round(invisible_s * 1000))
    filters = made.filter_expression
    filters.type = messages.FilterType.TAG if sql is None else messages.FilterType.SQL
    filters.expression = sql if sql is not None else ("*" if tag is None else tag)
    if attempt is not None:
        made.attempt_id = attempt
    return made


def acknowledging(
    topic: str, *given: messages.Message | str, group: str = "readers"
) -> messages.AckMessageRequest:
    made = messages.AckMessageRequest()
    made.group.name, made.topic.name = group, topic
    for one in given:
        if isinstance(one, str):
            made.entries.add(message_id="an id", receipt_handle=one)
        else:
            system = one.system_properties
            made.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
    return made


def changing(
    topic: str, handle: str, seconds: float, *, group: str = "readers", suspend: bool | None = None
) -> messages.ChangeInvisibleDurationRequest:
    made = messages.ChangeInvisibleDurationRequest(receipt_handle=handle, message_id="an id")
    made.group.name, made.topic.name = group, topic
    made.invisible_duration.FromMilliseconds(round(seconds * 1000))
    if suspend is not None:
        made.suspend = suspend
    return made


async def send(client: GrpcClient, *sent: messages.Message) -> messages.SendMessageResponse:
    """Send messages, which must be stored."""
    answer: messages.SendMessageResponse = await client.unary(sending(*sent), timeout_s=10)
    assert answer.status.code == Code.OK, answer
    return answer


async def receive_some(
    client: GrpcClient, topic: str, most: int, **more: Any
) -> list[messages.Message]:
    """Receive until there are so many."""
    found: list[messages.Message] = []
    while len(found) < most:
        answer: Received = await client.receive(receiving(topic, wait_s=5.0, **more))
        assert answer.code == Code.OK, (answer.text, len(found))
        found += answer.messages
    return found
