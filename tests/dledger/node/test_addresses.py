"""Where members listen, and where others reach them: IPv6, and addresses that are translated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

import dledger
from dledger.config import Address, NodeConfig, parse_address
from dledger.errors import ConfigInvalid
from dledger.free_ports import free_ports
from dledger.node.host import HostConfig
from tests.dledger.node.ipv6_loopback import needs_ipv6
from tests.dledger.running_members import ready

GROUP = "g"
STORE = dledger.StoreConfig(segment_bytes=1 << 20, index_segment_bytes=1 << 16, max_body_bytes=1024)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:20911", Address("10.0.0.1", 20911)),
        ("host.name:1", Address("host.name", 1)),
        ("[::1]:20911", Address("::1", 20911)),
        ("[fe80::1%eth0]:65535", Address("fe80::1%eth0", 65535)),
    ],
)
def test_an_address_is_read_and_written_alike(text: str, address: Address) -> None:
    assert parse_address("peers", text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", ":1", "host", "host:0", "host:65536", "host:x", "[]:1", "[::1]", "::1", "::1:20911"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="peers"):
        parse_address("peers", text)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "[::ffff:0.0.0.0]", "[::%lo]", "0", "0x0.0"])
def test_an_address_that_is_all_of_a_machine_is_one_to_listen_at_only(
    tmp_path: Path, host: str
) -> None:
    everywhere, home = f"{host}:20911", "10.0.0.1:20911"
    listening = config(tmp_path, "n0", {"n0": home}, everywhere)
    assert str(listening.listen_address) == everywhere
    HostConfig(address=home, listen=everywhere)
    for joining in (False, True):
        with pytest.raises(ConfigInvalid, match="cannot connect to") as refused:
            replace(listening, peers={"n0": home, "n1": everywhere}, joining=joining)
        assert refused.value.setting == "peers.n1"
    with pytest.raises(ConfigInvalid, match="cannot connect to"):
        HostConfig(address=everywhere)


def test_a_name_that_no_folder_can_have_is_refused_in_a_member_that_joins(tmp_path: Path) -> None:
    name = chr(0x20000) * 64  # four bytes each
    with pytest.raises(ConfigInvalid, match="at most 127 bytes"):
        replace(config(tmp_path, "n0", {"n0": "h:1", name: "h:2"}), node_id=name, joining=True)


def test_an_ipv6_address_without_brackets_is_told_how_it_is_written() -> None:
    with pytest.raises(ConfigInvalid, match=r"brackets, as in \[::1\]:20911"):
        parse_address("peers", "fe80::1:20911")


def config(
    folder: Path, name: str, peers: Mapping[str, str], listen: str | None = None
) -> NodeConfig:
    return NodeConfig(
        group=GROUP,
        node_id=name,
        peers=peers,
        data_dir=folder,
        listen=listen,
        store=STORE,
        election_timeout_ms=200,
        heartbeat_interval_ms=50,
    )


@asynccontextmanager
async def members(configs: list[NodeConfig]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for each in configs:
            await stack.enter_async_context(dledger.open_node(each, dledger.LogOnly()))
        yield


@needs_ipv6
async def test_members_and_clients_meet_over_ipv6(tmp_path: Path) -> None:
    peers = {f"n{i}": f"[::1]:{port}" for i, port in enumerate(free_ports(3))}
    with trio.fail_after(30):
        async with members([config(tmp_path, name, peers) for name in peers]):
            text = ",".join(f"{name}={address}" for name, address in peers.items())
            for given in (peers, text, [peers["n1"]]):
                async with dledger.connect(given, group=GROUP) as log:
                    await log.append(b"hello")
            async with dledger.connect(peers, group=GROUP) as log:
                status = await log.status()
                assert status["members"]["addresses"] == peers  # type: ignore[index]


async def translated(
    public: int, private: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """What a router does that translates addresses: pass on what comes to one of its ports."""

    async def pass_on(source: trio.abc.Stream, sink: trio.abc.Stream) -> None:
        async with source, sink:
            try:
                async for piece in source:
                    await sink.send_all(piece)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # one side is gone; the other is closed

    async def serve(outside: trio.SocketStream) -> None:
        try:
            inside = await trio.open_tcp_stream("127.0.0.1", private)
        except OSError:
            await outside.aclose()
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_on, outside, inside)
            nursery.start_soon(pass_on, inside, outside)

    listeners = await trio.open_tcp_listeners(public, host="127.0.0.1")
    task_status.started()
    await trio.serve_listeners(serve, listeners)


async def test_members_behind_translated_addresses_are_reached_by_those_they_tell(
    tmp_path: Path,
) -> None:
    public, private = free_ports(3), free_ports(3)
    peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(public)}
    async with trio.open_nursery() as nursery:
        for there, here in zip(public, private, strict=True):
            await nursery.start(partial(translated, there, here))
        configs = [
            config(tmp_path, name, peers, f"127.0.0.1:{here}")
            for name, here in zip(peers, private, strict=True)
        ]
        with trio.fail_after(30):
            async with members(configs), dledger.connect(peers, group=GROUP) as log:
                await log.append(b"hello")
                status = await log.status()
                assert status["members"]["addresses"] == peers  # type: ignore[index]
        nursery.cancel_scope.cancel()


async def test_a_host_listens_where_it_is_told_to_and_is_known_by_its_address(
    tmp_path: Path,
) -> None:
    told, here = free_ports(2)
    host_config = dledger.HostConfig(address=f"127.0.0.1:{told}", listen=f"127.0.0.1:{here}")
    async with dledger.open_host(host_config) as host:
        peers = {"n0": f"127.0.0.1:{told}"}
        async with host.open_node(config(tmp_path, "n0", peers), dledger.LogOnly()) as node:
            await ready(node)
            async with dledger.connect([f"127.0.0.1:{here}"], group=GROUP) as log:
                await log.status()
            with pytest.raises(OSError, match="all attempts"):
                await trio.open_tcp_stream("127.0.0.1", told)
        other = config(tmp_path / "other", "n0", peers, listen=f"127.0.0.1:{told}")
        with pytest.raises(ConfigInvalid, match="listen: set it in HostConfig"):
            async with host.open_node(other, dledger.LogOnly()):
                pytest.fail("it opened")


@pytest.mark.parametrize("listen", ["nowhere", "::1:1", ""])
def test_a_place_to_listen_that_is_none_is_refused(tmp_path: Path, listen: str) -> None:
    with pytest.raises(ConfigInvalid, match="listen"):
        config(tmp_path, "n0", {"n0": "127.0.0.1:1"}, listen)
    with pytest.raises(ConfigInvalid, match="listen"):
        dledger.HostConfig(address="127.0.0.1:1", listen=listen)


async def test_an_address_that_is_not_this_machine_s_names_the_setting_to_use(
    tmp_path: Path,
) -> None:
    peers = {"n0": f"203.0.113.7:{free_ports(1)[0]}"}  # of a block that no machine has
    with pytest.raises(ConfigInvalid, match="give `listen`"):
        async with dledger.open_node(config(tmp_path, "n0", peers), dledger.LogOnly()):
            pytest.fail("it opened")
