"""The proxy's port, and how the proxy ends."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

import proxy.server
from dledger_mq import Client
from proxy.http2.call import Call
from proxy.http2.frames import END_HEADERS, END_STREAM
from proxy.http2.status import Status
from proxy.server import serve_proxy
from proxy.wire.messages_pb2 import HeartbeatRequest
from tests.proxy.grpc_client import GrpcFailed
from tests.proxy.http2.peer import headers, request
from tests.proxy.http2.served import connected, hold
from tests.proxy.scripted_brokers import scripted_proxy

ENDED = {"grpc-status": "14", "grpc-message": "the server is ending"}


async def test_all_connections_share_one_bound_of_what_they_hold(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    async def served(*_: object, held: object, answers: object, **__: object) -> None:
        given.append((held, answers))

    monkeypatch.setattr(proxy.server, "serve_connection", served)
    with trio.fail_after(10):
        async with Client(["127.0.0.1:1"]) as client:
            address, _ = await nursery.start(partial(serve_proxy, client), "127.0.0.1", 0)
            for _ in range(2):
                async with await trio.open_tcp_stream(address.host, address.port) as stream:
                    await stream.send_all(b"PRI")
                    await stream.receive_some(1)
            nursery.cancel_scope.cancel()
    first, second = given
    assert first[0] is second[0] is not first[1]
    assert first[1] is second[1]


async def test_calls_that_outlast_a_drain_end_as_unavailable(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted_proxy() as here:
        draining = here.proxy.draining

        async def wait(call: Call) -> None:
            await trio.sleep(1.5 if await call.receive() else 100)

        drained = trio.Event()

        async def drain() -> None:
            await here.proxy.drain()
            drained.set()

        opened = await connected(nursery, hold, draining=draining)
        waiting = await connected(nursery, wait, draining=draining)
        await opened.send(headers(1))
        await waiting.send(headers(1, flags=END_HEADERS | END_STREAM), request(3, b"ends in time"))
        begun = trio.current_time()
        nursery.start_soon(drain)
        await trio.sleep(1.9)
        assert opened.statuses() == {}
        assert {each: got["grpc-status"] for each, got in waiting.statuses().items()} == {3: "0"}
        await trio.sleep(0.2)
        assert opened.statuses() == {1: ENDED}
        assert waiting.statuses()[1].items() >= ENDED.items()
        # One that comes meanwhile, and does not know yet.
        late = await connected(nursery, hold, draining=draining)
        await late.send(headers(1))
        assert late.statuses()[1].items() >= ENDED.items()
        await drained.wait()
        assert trio.current_time() - begun == pytest.approx(3, abs=0.2)
        assert opened.has_ended
        assert waiting.has_ended
        nursery.cancel_scope.cancel()


async def test_paths_that_are_no_methods_count_together(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted_proxy() as here:
        client = await here.client()
        for number in range(100):
            with pytest.raises(GrpcFailed) as failed:
                await (await client.call(f"/junk/Method{number}")).receive()
            assert failed.value.code == Status.UNIMPLEMENTED
        await client.unary(HeartbeatRequest())
        figures = here.proxy.figures
        assert figures.ended == {"other": 100, "Heartbeat": 1}
        assert figures.calls == {"other": 0, "Heartbeat": 0}
