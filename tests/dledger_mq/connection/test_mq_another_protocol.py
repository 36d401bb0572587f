"""What listens at the address of a name server speaks another protocol: each call fails at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from dledger_mq import (
    Admin,
    Client,
    Message,
    NameServersUnreachable,
    NoNameServers,
    Producer,
    PullConsumer,
    Rejected,
)
from remoting.bodies.message_queue import MessageQueue
from tests.dledger_mq.scripted_cluster import ScriptedBroker, scripted

OTHERS = {
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "the log of a member": b"\x00\x00\x00\x10\x00\x0e\x92\xa7refused\xa4none",
    "what nobody knows": bytes(range(200, 256)) * 2,
}


@asynccontextmanager
async def listening(answer: bytes) -> AsyncIterator[str]:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield f"127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def sent(address: str) -> None:
    async with Producer("p", nameservers=[address]) as producer:
        await producer.send(Message("T", b"x"), timeout_s=60.0)


async def pulled(address: str) -> None:
    async with PullConsumer("c", nameservers=[address]) as consumer:
        await consumer.next_offset(MessageQueue("T", "broker-a", 0))


async def listed(address: str) -> None:
    async with Admin(nameservers=[address]) as admin:
        await admin.topics()


async def routed(address: str) -> None:
    async with Client([address]) as client:
        await client.routes.find("T")


CALLS: dict[str, Callable[[str], Awaitable[None]]] = {
    "send": sent,
    "pull": pulled,
    "list topics": listed,
    "find a route": routed,
}


@pytest.mark.parametrize("other", OTHERS)
async def test_each_call_fails_at_once(other: str) -> None:
    async with listening(OTHERS[other]) as address:
        for call, carry_out in CALLS.items():
            with trio.fail_after(4.0), pytest.raises((NoNameServers, Rejected)) as told:
                await carry_out(address)
            assert "no name server there" in str(told.value), call


async def test_one_name_server_is_enough() -> None:
    async with (
        listening(OTHERS["HTTP"]) as other,
        scripted(ScriptedBroker()) as names,
        Producer("p", nameservers=[other, names.address]) as producer,
    ):
        await producer.send(Message("T", b"x"))


async def test_one_that_does_not_answer_may_be_one() -> None:
    async with (
        listening(OTHERS["HTTP"]) as other,
        listening(b"") as silent,
        Client([other, silent]) as client,
    ):
        with pytest.raises(NameServersUnreachable) as told:
            await client.routes.find("T")
        assert not isinstance(told.value, NoNameServers)
