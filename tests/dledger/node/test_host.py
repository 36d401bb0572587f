"""Members of many groups behind one address: real files, real sockets, three hosts in one loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

import dledger
from dledger.client.group_client import connect_node
from dledger.config import parse_address
from dledger.free_ports import free_ports
from dledger.wire.client_protocol import Operation

NAMES = ("n0", "n1", "n2")
STORE = dledger.StoreConfig(
    segment_bytes=1 << 20, index_segment_bytes=1 << 16, max_body_bytes=64 * 1024
)


class Bodies:
    """Keeps every body; refuses one."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def apply(self, entries: Sequence[dledger.Entry]) -> list[None]:
        for entry in entries:
            if entry.body == b"poison":
                raise ValueError("a body that this machine cannot take")
            self.bodies.append(bytes(entry.body))
        return [None] * len(entries)


class Hosts:
    """Three hosts, and what runs on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.timeout_ms = 300
        ports = free_ports(len(NAMES))
        self.peers = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, ports, strict=True)}
        self.hosts: dict[str, dledger.Host] = {}
        self.machines: dict[tuple[str, str], Bodies] = {}

    def config(self, name: str, group: str) -> dledger.NodeConfig:
        return dledger.NodeConfig(
            group=group,
            node_id=name,
            peers=self.peers,
            data_dir=self.folder / name / group,
            store=STORE,
            election_timeout_ms=self.timeout_ms,
            heartbeat_interval_ms=50,
        )

    async def open(self, stack: AsyncExitStack, name: str, group: str) -> dledger.Node:
        machine = self.machines[name, group] = Bodies()
        opening = self.hosts[name].open_node(self.config(name, group), machine)
        return await stack.enter_async_context(opening)

    async def open_everywhere(self, stack: AsyncExitStack, groups: Sequence[str]) -> None:
        for group in groups:
            for name in NAMES:
                await self.open(stack, name, group)

    async def leader(self, group: str) -> dledger.Node:
        with trio.fail_after(10):
            while True:
                for host in self.hosts.values():
                    node = host.nodes.get(group)
                    if node is not None and node.is_ready_leader:
                        return node
                await trio.sleep(0.01)


@asynccontextmanager
async def three_hosts(folder: Path) -> AsyncIterator[Hosts]:
    hosts = Hosts(folder)
    async with AsyncExitStack() as stack:
        for name in NAMES:
            config = dledger.HostConfig(address=hosts.peers[name])
            hosts.hosts[name] = await stack.enter_async_context(dledger.open_host(config))
        yield hosts


async def test_groups_on_the_same_hosts_have_logs_of_their_own(tmp_path: Path) -> None:
    groups = [f"g{number}" for number in range(5)]
    async with three_hosts(tmp_path) as hosts, AsyncExitStack() as stack:
        await hosts.open_everywhere(stack, groups)
        for group in groups:
            leader = await hosts.leader(group)
            appended = await leader.append(group.encode())
            for host in hosts.hosts.values():
                with trio.fail_after(5):
                    await host.nodes[group].wait_applied(appended.index)
        for (_, group), machine in hosts.machines.items():
            assert machine.bodies == [group.encode()]
        for host in hosts.hosts.values():
            assert sorted(host.nodes) == groups


async def test_a_client_reaches_each_group_at_the_same_address(tmp_path: Path) -> None:
    async with three_hosts(tmp_path) as hosts, AsyncExitStack() as stack:
        await hosts.open_everywhere(stack, ["g", "h"])
        for group in ("g", "h"):
            await hosts.leader(group)
            client = dledger.GroupClient(group, hosts.peers)
            await client.append([group.encode()], 10.0)
            async with connect_node(
                group, "n0", parse_address("n0", hosts.peers["n0"])
            ) as connection:
                status, _ = await connection.ask(Operation.STATUS)
            assert isinstance(status, dict)
            assert (status["group"], status["node_id"]) == (group, "n0")


async def test_heartbeats_keep_all_leaders_in_office(tmp_path: Path) -> None:
    groups = [f"g{number}" for number in range(5)]
    async with three_hosts(tmp_path) as hosts, AsyncExitStack() as stack:
        hosts.timeout_ms = 1000  # no stall of a busy machine is to be taken for a lost leader
        await hosts.open_everywhere(stack, groups)
        terms = {group: (await hosts.leader(group)).term for group in groups}
        await trio.sleep(3.0)  # more than any election timeout, with nothing but heartbeats
        for group in groups:
            leader = await hosts.leader(group)
            assert leader.term == terms[group]
            for host in hosts.hosts.values():
                assert host.nodes[group].read_stale(max_lag_s=1.0) == leader.status().applied


async def test_a_group_that_stops_on_one_host_goes_on_with_the_others_and_comes_back(
    tmp_path: Path,
) -> None:
    async with three_hosts(tmp_path) as hosts, AsyncExitStack() as stack:
        await hosts.open_everywhere(stack, ["h"])
        for name in ("n1", "n2"):
            await hosts.open(stack, name, "g")
        async with AsyncExitStack() as one:
            await hosts.open(one, "n0", "g")
            await (await hosts.leader("g")).append(b"one")
        assert sorted(hosts.hosts["n0"].nodes) == ["h"]
        leader = await hosts.leader("g")
        await leader.append(b"two")
        assert not leader.status().peers["n0"].connected
        await (await hosts.leader("h")).append(b"other")
        node = await hosts.open(stack, "n0", "g")
        appended = await (await hosts.leader("g")).append(b"three")
        with trio.fail_after(10):
            await node.wait_applied(appended.index)
        assert hosts.machines["n0", "g"].bodies == [b"one", b"two", b"three"]


async def test_what_ends_one_group_comes_out_of_its_block_and_ends_no_other(
    tmp_path: Path,
) -> None:
    async with three_hosts(tmp_path) as hosts, AsyncExitStack() as stack:
        await hosts.open_everywhere(stack, ["h"])
        alone = replace(hosts.config("n0", "g"), peers={"n0": hosts.peers["n0"]})

        async def poison() -> None:
            async with hosts.hosts["n0"].open_node(alone, Bodies()) as node:
                async for change in node.role_changes():
                    if change.ready:
                        await node.append(b"poison")

        with trio.fail_after(10), pytest.raises(dledger.MachineFailed):
            await poison()
        assert list(hosts.hosts["n0"].nodes) == ["h"]
        await (await hosts.leader("h")).append(b"still here")


@pytest.mark.parametrize("order", [("g", "g"), ("g", "h")])
async def test_a_host_takes_one_member_of_a_group_and_no_more_groups_than_agreed(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    hosts = Hosts(tmp_path)
    first, second = order
    limit = 2 if first == second else 1
    setting = "group" if first == second else "max_groups"
    config = dledger.HostConfig(address=hosts.peers["n0"], max_groups=limit)
    async with (
        dledger.open_host(config) as host,
        host.open_node(hosts.config("n0", first), Bodies()),
    ):
        with pytest.raises(dledger.ConfigInvalid) as caught:
            async with host.open_node(hosts.config("n0", second), Bodies()):
                raise AssertionError("it was opened")
        assert caught.value.setting == setting
        assert list(host.nodes) == [first]


async def test_a_node_of_another_address_is_refused_and_its_place_stays_free(
    tmp_path: Path,
) -> None:
    hosts = Hosts(tmp_path)
    async with dledger.open_host(dledger.HostConfig(address=hosts.peers["n0"])) as host:
        with pytest.raises(dledger.ConfigInvalid, match="is not the host's address"):
            async with host.open_node(hosts.config("n1", "g"), Bodies()):
                raise AssertionError("it was opened")
        async with host.open_node(hosts.config("n0", "g"), Bodies()):
            assert list(host.nodes) == ["g"]
        assert list(host.nodes) == []


@pytest.mark.parametrize("max_groups", [0, 1001])
def test_a_host_may_have_so_many_groups(max_groups: int) -> None:
    with pytest.raises(dledger.ConfigInvalid, match="max_groups"):
        dledger.HostConfig(address="127.0.0.1:1", max_groups=max_groups)


async def test_a_taken_address_is_told_before_anything_is_opened(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    config = dledger.HostConfig(address=hosts.peers["n0"])
    async with dledger.open_host(config):
        with pytest.raises(dledger.AddressInUse):
            async with dledger.open_host(config):
                raise AssertionError("it was opened")
