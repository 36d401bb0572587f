"""Clients with TLS reach the leader through any member, and keep the names that they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.config import BrokerConfig
from dledger.free_ports import free_ports
from remoting.net.address import Address
from remoting.net.tls_config import ClientAuth, TlsMode
from tests.broker.one_broker import Client
from tests.broker.relays.test_broker_group_door import passed_on, sent
from tests.broker.three_brokers import group_of_three
from tests.remoting.net.certificates import HERE, authority, client_tls, server_config, signed


async def test_clients_with_tls_follow_the_leader_by_one_address(tmp_path: Path) -> None:
    """Members have an authority of their own: the certificate of a client opens no log."""
    (port,) = free_ports(1)
    own = {
        name: {
            "tls": server_config(
                mode=TlsMode.ENFORCING,
                client_auth=ClientAuth.REQUIRE,
                files=signed(name, HERE, by="members"),
            ),
            "peer_authorities": authority("members").path,
        }
        for name in ("n0", "n1", "n2")
    }
    shared: dict[str, Any] = {"listen_group": Address(HERE, port), "shares_port": True}
    tls = client_tls(signed("orders", "billing"), believed="members")
    async with group_of_three(tmp_path, own=own, **shared) as group:
        leader, _direct = await group.leader()
        client = Client(group.nursery, f"{HERE}:{port}", tls)
        await sent(client, b"before")
        assert passed_on(group) == 1
        names = [one.names for one in group.brokers[leader].requests.connections]
        assert frozenset({"orders", "billing"}) in names
        await group.brokers[leader].node.transfer_leadership()
        await sent(client, b"after")
        next_leader, _direct = await group.leader()
        assert next_leader != leader
        names = [one.names for one in group.brokers[next_leader].requests.connections]
        assert frozenset({"orders", "billing"}) in names


def test_the_log_believes_the_authority_of_members_alone(tmp_path: Path) -> None:
    config = BrokerConfig(
        group="broker-a",
        node_id="n0",
        peers={"n0": "127.0.0.1:20911"},
        listen=Address(HERE, 10911),
        directory=tmp_path,
        tls=server_config(files=signed("n0", HERE, by="members")),
        peer_authorities=authority("members").path,
    )
    assert config.log_tls is not None
    assert config.log_tls.authorities == authority("members").path
    assert config.client_tls is not None
    assert config.client_tls.authorities == authority().path
