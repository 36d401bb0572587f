"""The proxy's port, and how the proxy ends."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

import proxy.server
from dledger_mq import Client
from proxy.server import serve_proxy


async def test_all_connections_share_one_bound_of_what_they_hold(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    async def served(*_: object, held: object, **__: object) -> None:
        given.append(held)

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
    assert first is second
