"""The name server over IPv6, and a client that asks it."""

from __future__ import annotations

import trio

from dledger.free_ports import free_ports
from dledger_mq import Admin
from nameserver.server import serve_nameserver
from tests.dledger.node.ipv6_loopback import needs_ipv6


@needs_ipv6
async def test_a_client_asks_a_name_server_over_ipv6() -> None:
    (port,) = free_ports(1)
    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_nameserver, "::1", port)
        assert str(address) == f"[::1]:{port}"
        async with Admin(nameservers=[str(address)]) as admin:
            assert await admin.topics() == []
        nursery.cancel_scope.cancel()
