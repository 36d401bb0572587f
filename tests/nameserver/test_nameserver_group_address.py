"""Members of a group register one address in turn; each says where it serves itself."""

from __future__ import annotations

import pytest

from dledger_mq.connection.topic_route import client_route
from nameserver.brokers import BrokerIdentity, Speaker
from nameserver.errors import BrokerAlive, RegistrationRefused, StaleMaster
from nameserver.routes import RouteTable
from remoting.bodies.registration import BrokerRegistration
from remoting.bodies.route import BrokerData, decode_route, encode_route
from remoting.bodies.topic_config import DataVersion, TopicConfig
from remoting.net.errors import AddressMalformed

GROUP, DIRECT_A, DIRECT_B = "10.0.0.9:10911", "10.0.0.1:10912", "10.0.0.2:10912"


def register(table: RouteTable, direct: str, term: int, address: str = GROUP) -> None:
    """Register by a connection from the host of the direct address."""
    table.register(
        BrokerIdentity("cl", "b", 0, address),
        BrokerRegistration({"T": TopicConfig("T", 4, 4)}, DataVersion(0, 0, term)),
        speaker=Speaker(direct, direct.partition(":")[0] or "10.0.0.9"),
        now=0.0,
        direct_address=direct,
    )


def broker(table: RouteTable) -> BrokerData:
    found = table.broker("b")
    assert found is not None
    return found


def test_the_next_leader_takes_the_address_over_though_the_last_one_is_frozen() -> None:
    table = RouteTable()
    register(table, DIRECT_A, 1)
    assert (broker(table).master, broker(table).leader) == (GROUP, DIRECT_A)
    register(table, DIRECT_B, 2)  # the connection of the first is still open
    assert (broker(table).master, broker(table).leader) == (GROUP, DIRECT_B)
    # The first one wakes up, and does not know yet that it leads no more.
    with pytest.raises(BrokerAlive):
        register(table, DIRECT_A, 1)
    # The same on one machine, where the host is no difference.
    with pytest.raises(StaleMaster):
        register(table, "10.0.0.2:10999", 1)
    # Its connection goes; the address is the second one's.
    table.connection_closed(DIRECT_A, 0.0)
    assert broker(table).leader == DIRECT_B


def test_another_host_takes_no_address_over_without_a_newer_term_and_a_place_of_its_own() -> None:
    table = RouteTable()
    register(table, DIRECT_A, 2)
    with pytest.raises(BrokerAlive):
        register(table, DIRECT_B, 2)
    with pytest.raises(BrokerAlive):
        register(table, "", 3)
    with pytest.raises(RegistrationRefused):
        register(table, DIRECT_B, 1 << 62)
    assert broker(table).leader == DIRECT_A
    alone = RouteTable()
    register(alone, "", 1)
    with pytest.raises(BrokerAlive):
        alone.register(
            BrokerIdentity("cl", "b", 0, GROUP),
            BrokerRegistration({}, DataVersion(0, 0, 2)),
            speaker=Speaker("c", "10.0.0.2"),
            now=0.0,
            direct_address=DIRECT_B,
        )


@pytest.mark.parametrize("direct", ["nonsense", "10.0.0.1:99999", "a" * 400 + ":1"])
def test_a_place_that_is_no_address_is_refused(direct: str) -> None:
    with pytest.raises((AddressMalformed, RegistrationRefused)):
        register(RouteTable(), direct, 1)


def test_our_clients_go_directly_and_others_find_the_address_they_know() -> None:
    table = RouteTable()
    register(table, DIRECT_A, 1)
    route = table.route("T")
    assert route is not None
    body = encode_route(route)
    assert b'"brokerAddrs":{"0":"10.0.0.9:10911"}' in body
    assert client_route("T", decode_route(body)).masters == {"b": DIRECT_A}
    old = body.replace(b',"directAddr":"10.0.0.1:10912"', b"")
    assert old != body
    assert client_route("T", decode_route(old)).masters == {"b": GROUP}
