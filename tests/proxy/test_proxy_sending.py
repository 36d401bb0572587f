"""Sending by the proxy: what is stored, and what is refused."""

from __future__ import annotations

from pathlib import Path

from proxy.wire.messages_pb2 import Code
from tests.proxy.real_proxy import message, real_proxy, receive_some, send


async def test_what_is_sent_is_received(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic("Orders")
        client = await here.client()
        sent = message(topic, b"one", tag="t", keys=["a", "b"], user={"x": "1"})
        answer = await send(client, sent)
        assert [entry.status.code for entry in answer.entries] == [Code.OK]
        (got,) = await receive_some(client, topic, 1)
        assert got.body == b"one"
