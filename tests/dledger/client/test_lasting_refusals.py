"""A client that every member refuses for good raises at once, whatever is called and why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
import trio.testing

import dledger
from dledger.client.client_errors import ClientRefused, GroupUnreachable, WrongGroup
from dledger.client.group_client import GroupClient
from dledger.client.remote_log import RemoteLog
from dledger.config import Address
from dledger.free_ports import free_ports
from dledger.network.connections import Connections
from dledger.network.tls_config import TlsConfig
from dledger.serving import listener
from dledger.serving.listener import Listener
from dledger.wire.handshake import encode_refused
from nameserver.server import serve_nameserver
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.frame import encode_command
from tests.dledger.client.fake_member import GROUP, fake_group
from tests.dledger.client.test_changes_of_leader import GROUP_CLIENT, OF_A_MEMBER, REMOTE_LOG
from tests.dledger.serving.test_peer_conversation import Member

DATA = Path(__file__).parent.parent / "data" / "tls"


def files(name: str) -> TlsConfig:
    return TlsConfig(
        certificate=DATA / f"{name}.pem",
        key=DATA / f"{name}-key.pem",
        authorities=DATA / "authority.pem",
    )


class Case(NamedTuple):
    """What a client asks for that the member n0 of group g refuses, and what it is told."""

    told: str
    group: str = GROUP
    name: str = "n0"
    tls: TlsConfig | None = None
    member_tls: TlsConfig | None = None


CASES = {
    "another group": Case("this is a node of g, not of group other", group="other"),
    "another member": Case("this is node n0, not n1", name="n1"),
    "TLS against none": Case("it does not speak TLS", tls=files("tool")),
    "none against TLS": Case("TLS is spoken here", member_tls=files("n0")),
    "a certificate that the member refuses": Case(
        "it does not believe our certificate: tlsv1 alert unknown ca",
        tls=files("n1-of-a-stranger"),
        member_tls=files("n0"),
    ),
    "a certificate that the client refuses": Case(
        "its certificate is not believed",
        tls=replace(files("tool"), authorities=DATA / "stranger.pem"),
        member_tls=files("n0"),
    ),
    "a certificate of another member": Case(
        "its certificate is that of n0, not of n2",
        name="n2",
        tls=files("tool"),
        member_tls=files("n0"),
    ),
}

OF_A_MEMBER_CALLS: dict[str, Callable[[GroupClient, str], Awaitable[object]]] = {
    "status": lambda client, name: client.status(name),
    "snapshot": lambda client, name: client.snapshot(name),
    "entries": lambda client, _: client.entries(0),
    "ask_members": lambda client, _: client.ask_members(),
    "ready_leader": lambda client, _: client.ready_leader(),
}


async def followed(log: RemoteLog) -> None:
    await anext(aiter(log.tail()))


@asynccontextmanager
async def one_member(folder: Path, tls: TlsConfig | None) -> AsyncIterator[str]:
    (port,) = free_ports(1)
    peers = {"n0": f"127.0.0.1:{port}"}
    config = dledger.NodeConfig(
        group=GROUP, node_id="n0", peers=peers, data_dir=folder, tls=tls, new=True
    )
    async with dledger.open_node(config, dledger.LogOnly()):
        yield peers["n0"]


@pytest.mark.parametrize("name", CASES)
async def test_each_call_raises_at_once(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    assert set(OF_A_MEMBER_CALLS) == OF_A_MEMBER
    async with one_member(tmp_path, case.member_tls) as address:
        peers = {case.name: address}
        client = GroupClient(case.group, peers, case.tls)
        async with dledger.connect(peers, group=case.group, tls=case.tls, timeout_s=60.0) as log:
            calls: dict[str, Callable[[], Awaitable[object]]] = {"follow": lambda: followed(log)}
            for call, made in REMOTE_LOG.items():
                calls[f"log.{call}"] = lambda made=made: made(log)  # type: ignore[misc]
            for call, asked in GROUP_CLIENT.items():
                calls[f"client.{call}"] = lambda asked=asked: asked(client)  # type: ignore[misc]
            for call, of_one in OF_A_MEMBER_CALLS.items():
                calls[f"client.{call}"] = lambda of_one=of_one: of_one(client, case.name)  # type: ignore[misc]
            for call, carry_out in calls.items():
                # Not after the 60 s of the log; on a busy machine one call has taken seconds.
                with trio.fail_after(20.0), pytest.raises(ClientRefused, match=case.told) as told:
                    await carry_out()
                assert told.value.retry_useless, call
                if name == "another group":
                    assert isinstance(told.value, WrongGroup), call
                    assert (told.value.group, told.value.found) == ("other", (GROUP,))


async def test_what_speaks_another_protocol_lasts(nursery: trio.Nursery) -> None:
    async def web(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    (served,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, web, [served])
    peers = f"127.0.0.1:{served.socket.getsockname()[1]}"
    async with dledger.connect(peers, group=GROUP, timeout_s=60.0) as log:
        with trio.fail_after(20.0), pytest.raises(ClientRefused, match="HTTP"):
            await log.append(b"x")


async def test_a_broker_s_port_for_clients_refuses_the_log_s_tools_for_good(
    nursery: trio.Nursery,
) -> None:
    peers = str(await nursery.start(serve_nameserver, "127.0.0.1", 0))
    async with dledger.connect(peers, group=GROUP, timeout_s=60.0) as log:
        with trio.fail_after(20.0), pytest.raises(ClientRefused, match="clients of RocketMQ"):
            await log.append(b"x")


async def test_a_member_names_http_tls_and_remoting_at_its_port_and_answers_http(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def told(address: str, spoken: bytes) -> bytes:
        host, _, port = address.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(spoken)
            return b"".join([part async for part in stream])

    async with one_member(tmp_path / "tls", files("n0")) as address:
        with trio.fail_after(20.0):
            answer = await told(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    async with one_member(tmp_path, None) as address:
        with trio.fail_after(20.0):
            for method in ("GET", "OPTIONS", "POST"):
                request = f"{method} /readyz HTTP/1.1\r\nHost: x\r\n\r\n".encode()
                head, _, text = (await told(address, request)).decode().partition("\r\n\r\n")
                assert head.startswith("HTTP/1.1 400 Bad Request\r\n")
                assert f"Content-Length: {len(text)}" in head
                assert text.count("\n") == 1
                assert "this is the port of the log" in text
            remoting = encode_command(Command(RequestCode.HEART_BEAT, {"a": "b"}))
            for spoken, words in (
                (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"speaks TLS and this one does not"),
                (remoting, b"is a client of RocketMQ"),
                (b"HTTP/1.1 200 OK\r\n\r\n", b"speaks HTTP"),
            ):
                answer = await told(address, spoken)
                assert b"refused" in answer
                assert words in answer
    for named in ("speaks HTTP", "speaks TLS", "is a client of RocketMQ"):
        assert f"the other side {named}" in caplog.text


async def test_a_refusal_of_one_member_is_not_that_of_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    autojump_clock.autojump_threshold = 0.02
    async with fake_group(1) as group:
        group.elect(0, term=1)
        peers = {"n7": group[0].address, **group.peers}  # n7 left; n0 listens at its address
        async with dledger.connect(peers, group=GROUP) as log:
            await log.append(b"x")
        (nobody,) = free_ports(1)
        peers = {"n7": group[0].address, "n8": f"127.0.0.1:{nobody}"}
        async with dledger.connect(peers, group=GROUP, timeout_s=3.0) as log:
            began = trio.current_time()
            with pytest.raises(dledger.NotAppendedInTime, match="this is node n0"):
                await log.append(b"x")
            assert trio.current_time() - began >= 3.0


async def test_a_client_may_try_again_once_the_setting_is_changed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    autojump_clock.autojump_threshold = 0.02
    async with fake_group(1) as group:
        peers = group.peers
        group[0].node_id = "n9"
        async with dledger.connect(peers, group=GROUP) as log:
            with pytest.raises(ClientRefused):
                await log.append(b"x")
            group[0].node_id = "n0"
            group.elect(0, term=1)
            await trio.sleep(2.0)
            await log.append(b"x")


async def test_a_process_that_still_opens_its_groups_refuses_for_the_moment(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    (port,) = free_ports(1)
    address = Address("127.0.0.1", port)
    connections = Connections(nursery, address)
    ports = {"a": Member("a", connections).port}
    served = Listener(ports, connections, max_groups=2)
    nursery.start_soon(served.serve, await served.open(address))
    autojump_clock.autojump_threshold = 0.02
    async with dledger.connect(str(address), group="b", timeout_s=3.0) as log:
        with pytest.raises(dledger.NotAppendedInTime, match="a node of a, not of group b"):
            await log.append(b"x")
        await trio.sleep(listener.OPENING_S)
        with pytest.raises(WrongGroup):
            await log.append(b"x")


async def test_a_refusal_of_an_earlier_version_is_tried_again(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    refused = encode_refused("no")
    assert refused.endswith(b"\xc2\x90")  # what is lasting and the groups stand at its end

    async def early(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            body = refused[6:-2]
            header = bytes([body[0] - 2]) + body[1:]
            lengths = (len(header) + 2).to_bytes(4, "big") + len(header).to_bytes(2, "big")
            await stream.send_all(lengths + header)

    autojump_clock.autojump_threshold = 0.02
    (served,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, early, [served])
    peers = f"127.0.0.1:{served.socket.getsockname()[1]}"
    async with dledger.connect(peers, group=GROUP, timeout_s=3.0) as log:
        with pytest.raises(dledger.NotAppendedInTime, match="refused: no"):
            await log.append(b"x")


async def test_advice_is_given_once_when_no_member_answers() -> None:
    peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(2))}
    with pytest.raises(GroupUnreachable) as found:
        await GroupClient(GROUP, peers).entries(0)
    told = str(found.value)
    assert told.count("connection refused") == 2
    assert told.count("check that the nodes run") == 1
