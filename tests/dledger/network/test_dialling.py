"""Connections that are dialled."""

from __future__ import annotations

import socket

import pytest
import trio

from dledger.config import Address
from dledger.network.network import KEEP_ALIVE_PROBES, KEEP_ALIVE_S, TCP, UNACKNOWLEDGED_MS


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


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="only Linux has these settings")
async def test_an_accepted_connection_ends_soon_after_the_callers_host_is_gone() -> None:
    """Else a member that comes back on another host would count as a second process of its name."""
    (listener,) = await TCP.listen(Address("127.0.0.1", 0))
    async with listener:
        port = listener.socket.getsockname()[1]
        async with await TCP.dial(Address("127.0.0.1", port)):
            accepted = await listener.accept()
            async with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                for option, value in (
                    (socket.TCP_KEEPIDLE, KEEP_ALIVE_S),
                    (socket.TCP_KEEPINTVL, KEEP_ALIVE_S),
                    (socket.TCP_KEEPCNT, KEEP_ALIVE_PROBES),
                ):
                    assert accepted.getsockopt(socket.IPPROTO_TCP, option) == value
