"""A group has one address: clients reach the leader through any member, whoever leads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from broker.config import BrokerConfig
from broker.errors import SettingInvalid
from broker.pulls.held_pulls import HELD_PULLS
from broker.relays import group_door
from broker.relays.commands import LeadFrom
from broker.relays.feature import LeadersPlace
from broker.relays.group_door import GROUP_DOOR
from broker.relays.state import LEADER_PLACE, LeaderPlace
from dledger import Discarded
from dledger.free_ports import free_ports
from remoting.message.record import decode_records
from remoting.net.address import Address
from remoting.net.errors import ConnectFailed, ConnectionClosed
from remoting.net.networks import parse_networks
from remoting.net.proxy_header import encode_proxy_header
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.frame import encode_command
from tests.broker.one_broker import Client, running_broker, until
from tests.broker.three_brokers import Group, group_of_three


def shared_port() -> dict[str, Any]:
    """The settings of members that share a port of this machine."""
    (port,) = free_ports(1)
    return {"listen_group": Address("127.0.0.1", port), "shares_port": True}


async def sent(client: Client, body: bytes) -> Command:
    """Send until it is stored, as clients do."""
    replies: list[Command] = []

    async def is_stored() -> bool:
        try:
            replies.append(await client.send("T", body))
        except (ConnectFailed, ConnectionClosed):
            return False
        return replies[-1].code == 0

    await until(is_stored)
    return replies[-1]


def passed_on(group: Group) -> int:
    """How many connections the members pass on."""
    return sum(passes_on(group, name) for name in group.brokers)


async def test_clients_of_the_group_reach_its_leader_through_the_others(tmp_path: Path) -> None:
    settings = shared_port()
    async with group_of_three(tmp_path, **settings) as group:
        leader, _direct = await group.leader()
        clients = [Client(group.nursery, str(settings["listen_group"])) for _ in range(4)]
        for number, client in enumerate(clients):
            await sent(client, b"%d" % number)
        # The leader has left the port, so that none of its clients hangs on it if it is frozen.
        assert passed_on(group) == len(clients)
        reply = await clients[0].pull("T", 0)
        records = decode_records(reply.body)
        assert [record.body for record in records] == [b"0", b"1", b"2", b"3"]
        own = {connection.peer for connection in group.brokers[leader].requests.connections}
        assert {Address(record.born_host, record.born_port) for record in records} <= own
        assert all(
            broker.config.address == settings["listen_group"] for broker in group.brokers.values()
        )


@pytest.mark.parametrize("how", ["dies", "ends", "hands over"])
async def test_clients_find_the_next_leader_at_the_same_address(tmp_path: Path, how: str) -> None:
    settings = shared_port()
    async with group_of_three(tmp_path, **settings) as group:
        leader, _direct = await group.leader()
        client = Client(group.nursery, str(settings["listen_group"]))
        await sent(client, b"before")
        if how == "hands over":
            await group.brokers[leader].node.transfer_leadership()
        else:
            if how == "ends":
                await group.brokers[leader].end()
            group.stop(leader)
        await sent(client, b"after")
        next_leader, _direct = await group.leader()
        assert next_leader != leader
        place = group.brokers[next_leader].machine.state[LEADER_PLACE]
        assert place.node_id == next_leader
        assert place.address == str(group.configs[next_leader].listen)


async def test_a_leader_with_an_address_of_its_own_serves_there_and_others_pass_on(
    tmp_path: Path,
) -> None:
    # As behind a load balancer: it picks any member.
    ports = dict(zip(("n0", "n1", "n2"), free_ports(3), strict=True))
    own = {name: {"listen_group": Address("127.0.0.1", port)} for name, port in ports.items()}
    async with group_of_three(tmp_path, own=own) as group:
        leader, _direct = await group.leader()
        for number, node_id in enumerate(sorted(group.brokers)):
            client = Client(group.nursery, str(group.configs[node_id].listen_group))
            await sent(client, b"%d" % number)
        assert passed_on(group) == 2
        # Connections that the leader served end when it leads no more.
        (other,) = [name for name in group.brokers if name != leader][:1]
        await group.brokers[leader].node.transfer_leadership(other)

        async def is_free() -> bool:
            return not group.brokers[leader].requests.connections

        await until(is_free)


async def test_a_client_is_let_go_when_no_member_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_door, "LEADER_S", 0.2)
    settings = shared_port()
    async with group_of_three(tmp_path, **settings) as group:
        leader, _direct = await group.leader()
        (survivor, other) = [name for name in group.brokers if name != leader]
        group.stop(leader)
        group.stop(other)
        await until_let_go(settings["listen_group"].port)
        assert group.brokers[survivor].requests.led_term is None


async def until_let_go(port: int) -> None:
    """Connect, and wait until the connection ends. The members that stop may reset it before."""
    with trio.fail_after(5):
        while True:
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", port)
            except OSError:
                await trio.sleep(0.01)
                continue
            async with stream:
                try:
                    assert await stream.receive_some() == b""
                except trio.BrokenResourceError:
                    continue
            return


async def test_a_relay_lasts_longer_than_a_client_waits_for_a_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_door, "LEADER_S", 0.2)
    settings = shared_port()
    async with group_of_three(tmp_path, **settings) as group:
        await group.leader()
        client = Client(group.nursery, str(settings["listen_group"]))
        await sent(client, b"first")
        await trio.sleep(0.5)
        # It is the connection of before: another one would have failed this request.
        assert (await client.send("T", b"second")).code == ResponseCode.SUCCESS


async def test_a_held_pull_is_answered_and_asked_again_when_its_leader_dies(tmp_path: Path) -> None:
    settings = shared_port()
    async with group_of_three(tmp_path, **settings) as group:
        leader, _direct = await group.leader()
        client = Client(group.nursery, str(settings["listen_group"]))
        await sent(client, b"x")
        await client.heartbeat("c1", "g", "T")
        async with held_pull(client, group, leader) as replies:
            group.stop(leader)
        assert replies[0].code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert replies[0].fields["nextBeginOffset"] == "1"
        await sent(client, b"y")
        # The next leader knows the consumer already, though its next heartbeat is far.
        assert (await client.ask(38, consumerGroup="g")).code == ResponseCode.SUCCESS


async def test_a_consumer_is_never_sent_elsewhere_while_its_leader_ends(tmp_path: Path) -> None:
    settings = shared_port()
    async with group_of_three(tmp_path, **settings) as group:
        leader, _direct = await group.leader()
        client = Client(group.nursery, str(settings["listen_group"]))
        await sent(client, b"x")
        codes: list[int] = []

        async def pull() -> None:
            while not codes or codes[-1] != ResponseCode.SUCCESS:
                codes.append((await client.pull("T", 1, sysFlag=6)).code)

        async def send() -> None:
            while True:  # while requests wait, the relay goes on reading from the old leader
                await client.send("U", b"z")

        async with trio.open_nursery() as clients:
            clients.start_soon(send)
            async with trio.open_nursery() as pulls:
                pulls.start_soon(pull)
                await until_held(group, leader)
                await group.brokers[leader].end()
                group.stop(leader)
                await sent(client, b"y")
            clients.cancel_scope.cancel()
        # After 14 clients written by others pause for up to three seconds.
        assert set(codes) == {ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.SUCCESS}


async def test_a_follower_that_ends_lets_its_clients_go_to_the_others(tmp_path: Path) -> None:
    settings = shared_port()
    async with group_of_three(tmp_path, **settings) as group:
        leader, _direct = await group.leader()
        client = Client(group.nursery, str(settings["listen_group"]))
        await sent(client, b"x")
        (follower,) = [name for name in group.brokers if passes_on(group, name)]
        assert follower != leader
        async with held_pull(client, group, leader) as replies:
            await group.brokers[follower].end()
        # Clients pause after that code; then they come by another member, on a new connection.
        assert replies[0].code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert not passes_on(group, follower)
        for _ in range(8):
            other = Client(group.nursery, str(settings["listen_group"]))
            assert (await sent(other, b"y")).code == ResponseCode.SUCCESS
        assert not passes_on(group, follower)


@asynccontextmanager
async def held_pull(client: Client, group: Group, leader: str) -> AsyncIterator[list[Command]]:
    """A pull that the leader holds when the block begins; behind it the reply is in the list."""
    replies: list[Command] = []

    async def pull() -> None:
        replies.append(await client.pull("T", 1, sysFlag=6))

    async with trio.open_nursery() as pulls:
        pulls.start_soon(pull)
        await until_held(group, leader)
        yield replies


def passes_on(group: Group, name: str) -> int:
    """How many connections a member passes on."""
    return group.brokers[name].parts[GROUP_DOOR].relays


async def until_held(group: Group, leader: str) -> None:
    async def is_held() -> bool:
        return len(group.brokers[leader].parts[HELD_PULLS]) == 1

    await until(is_held)


async def test_a_client_cannot_name_another_address_than_its_own(tmp_path: Path) -> None:
    settings = shared_port()
    async with running_broker(tmp_path, **settings) as (broker, nursery):
        port = settings["listen_group"].port
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(encode_proxy_header(Address("10.1.1.1", 1), Address("10.1.1.2", 2)))
        with trio.fail_after(5):
            assert await stream.receive_some() == b""
        await stream.aclose()
        client = Client(nursery, f"127.0.0.1:{port}")  # a group of one serves there itself
        assert (await sent(client, b"x")).code == ResponseCode.SUCCESS
        assert broker.parts[GROUP_DOOR].relays == 0


async def test_nobody_is_trusted_without_an_address_of_the_group(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, _nursery):
        assert not broker.config.trusts_proxy("127.0.0.1")


async def test_a_relay_that_is_named_tells_of_its_clients_at_a_broker_without_a_group_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client, relay = Address("10.1.1.1", 1), Address("10.1.1.2", 2)
    request = Command(
        RequestCode.HEART_BEAT, {}, b'{"clientID":"c","producerDataSet":[{"groupName":"p"}]}'
    )
    for named in ("127.0.0.1", "10.0.0.0/8"):
        networks = parse_networks(named)
        async with running_broker(tmp_path / named[:2], relays_from=networks) as (broker, _nursery):
            stream = await trio.open_tcp_stream("127.0.0.1", broker.config.listen.port)
            await stream.send_all(encode_proxy_header(client, relay) + encode_command(request))
            with trio.fail_after(5):
                is_believed = bool(await stream.receive_some())
            assert is_believed == (named == "127.0.0.1")
            if is_believed:
                assert [one.peer for one in broker.requests.connections] == [client]
            await stream.aclose()
    assert "the peer speaks a PROXY header" in caplog.text


def test_the_members_that_may_pass_clients_on_are_known(tmp_path: Path) -> None:
    def config(**more: Any) -> BrokerConfig:
        settings: dict[str, Any] = {
            "group": "g",
            "node_id": "n0",
            "peers": {"n0": "10.0.0.1:1", "n1": "10.0.0.2:1"},
            "listen": Address("0.0.0.0", 10911),
            "listen_group": Address("10.0.0.9", 10912),
            "directory": tmp_path,
        }
        return BrokerConfig(**{**settings, **more})

    assert config().trusts_proxy("10.0.0.2")
    assert not config().trusts_proxy("10.0.0.3")
    assert config().address_for_members == Address("10.0.0.1", 10911)
    assert config().address == Address("10.0.0.9", 10912)
    assert config(relays_from=parse_networks("10.0.0.0/24, ::1")).trusts_proxy("10.0.0.3")
    with pytest.raises(SettingInvalid, match="--relays-from: --peers has names"):
        config(peers={"n0": "broker-0.local:1"})
    with pytest.raises(ValueError, match="give networks"):
        parse_networks("10.0.0.0/99")


def test_the_place_of_a_leader_that_the_log_refused_is_said_again_until_it_is_known() -> None:
    submitted: list[Callable[[object], None]] = []
    log = SimpleNamespace(submit=lambda _bodies, done: submitted.append(done))
    known = LeaderPlace()
    place = LeadersPlace(cast(Any, log), known, LeadFrom("n0", "localhost:1"))
    place.begin_term()
    place.look()
    assert len(submitted) == 1, "it is on its way"
    submitted.pop()(Discarded(1, 1))
    place.look()
    assert len(submitted) == 1, "it is said again"
    known.node_id, known.address = "n0", "localhost:1"
    submitted.pop()([])
    place.look()
    place.begin_term()
    assert not submitted
