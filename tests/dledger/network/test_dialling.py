"""Connections that are dialled."""

from __future__ import annotations

import socket

import pytest
import trio

from dledger.config import Address
from dledger.network.network import TCP, UNACKNOWLEDGED_MS


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has this limit")
async def test_a_dialled_connection_is_given_up_when_nobody_acknowledges() -> None:
    (listener,) = await TCP.listen(Address("127.0.0.1", 0))
    async with listener:
        port = listener.socket.getsockname()[1]
        dialled = await TCP.dial(Address("127.0.0.1", port))
        async with dialled:
            assert isinstance(dialled, trio.SocketStream)
            limit_ms = dialled.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert limit_ms == UNACKNOWLEDGED_MS
