"""Groups of one process on disks of their own: one that hangs stops its own group alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

import dledger
from dledger.free_ports import free_ports
from dledger.serving.platform import Platform
from tests.dledger.node.held_disk import HeldDisk

STORE = dledger.StoreConfig(
    segment_bytes=1 << 20, index_segment_bytes=1 << 16, max_body_bytes=64 * 1024
)
NAMES = ("n0", "n1", "n2")


class Process:
    """Hosts in this loop, on one disk, and the members that run there."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self.folder = folder
        self.disk = HeldDisk()
        ports = free_ports(len(names))
        self.peers = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
        self.hosts: dict[str, dledger.Host] = {}

    def node(self, group: str, name: str = "n0") -> AbstractAsyncContextManager[dledger.Node]:
        config = dledger.NodeConfig(
            group=group,
            node_id=name,
            peers=self.peers,
            data_dir=self.folder / group / name,
            store=STORE,
            election_timeout_ms=300,
            heartbeat_interval_ms=50,
        )
        return self.hosts[name].open_node(config, dledger.LogOnly())

    async def leader(self, group: str, *, other_than: str = "") -> dledger.Node:
        """One that leads; its folder says when the group was born, so only the log is written."""
        with trio.fail_after(20):
            while True:
                for name, host in self.hosts.items():
                    node = host.nodes.get(group)
                    if node is None or not node.is_ready_leader or name == other_than:
                        continue
                    if node.status().birth:
                        return node
                await trio.sleep(0.01)


@asynccontextmanager
async def process(folder: Path, *names: str) -> AsyncIterator[Process]:
    made = Process(folder, names or ("n0",))
    async with AsyncExitStack() as stack:
        for name in made.peers:
            opening = dledger.open_host(
                dledger.HostConfig(address=made.peers[name]), Platform(disk=made.disk)
            )
            made.hosts[name] = await stack.enter_async_context(opening)
        try:
            yield made
        finally:
            made.disk.let_go()


async def quick(node: dledger.Node) -> dledger.Node:
    """Have the loop wait for the node's syncs."""
    while not node._member.turn.syncs.loop_waits:
        await node.append(b"x")
    return node


async def test_a_quick_disk_that_hangs_stops_its_own_group_alone(tmp_path: Path) -> None:
    async with process(tmp_path) as one, one.node("a"), one.node("b"):
        a, b = await quick(await one.leader("a")), await quick(await one.leader("b"))
        one.disk.hold("/a/")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(a.append, b"held")
            await trio.to_thread.run_sync(one.disk.hangs.wait)
            with trio.fail_after(20):
                await b.append(b"not held")
            one.disk.let_go()


async def test_a_leader_steps_down_when_its_quick_disk_hangs(tmp_path: Path) -> None:
    async with process(tmp_path, *NAMES) as three, AsyncExitStack() as stack:
        for name in NAMES:
            for group in ("a", "b"):
                await stack.enter_async_context(three.node(group, name))
        leader = await quick(await three.leader("a"))
        name = leader.config.node_id
        three.disk.hold(f"/a/{name}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outcome_of, leader)
            other = await three.leader("a", other_than=name)
            with trio.fail_after(20):
                await other.append(b"led by another")
                await (await three.leader("b")).append(b"on every disk")
            assert not leader.is_ready_leader
            three.disk.let_go()


async def outcome_of(node: dledger.Node) -> None:
    """Append, and have it fail or not."""
    try:
        await node.append(b"held")
    except dledger.OutcomeUnknown:
        return


async def test_the_other_groups_go_on_while_one_is_closed_on_a_disk_that_hangs(
    tmp_path: Path,
) -> None:
    async with process(tmp_path) as one, one.node("b"):
        b = await one.leader("b")
        async with trio.open_nursery() as nursery:
            leave = trio.Event()

            async def run_a() -> None:
                async with one.node("a"):
                    await leave.wait()

            nursery.start_soon(run_a)
            a = await one.leader("a")
            one.disk.hold("/a/")
            a.submit([b"held"], lambda outcome: None)
            await trio.to_thread.run_sync(one.disk.hangs.wait)
            leave.set()
            with trio.fail_after(20), pytest.raises(dledger.NodeClosing):
                await a.wait_applied(1_000)
            with trio.fail_after(20):
                await b.append(b"goes on")
            one.disk.let_go()


async def test_a_node_on_a_disk_that_never_answers_is_left_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.node.host.CLOSE_WAIT_S", 0.01)
    async with process(tmp_path) as one:
        with pytest.raises(dledger.DiskUnresponsive) as caught:
            await leave_while_it_hangs(one)
        assert caught.value.path == str(tmp_path / "a" / "n0")
        with pytest.raises(dledger.DataFolderLocked):
            async with one.node("a"):
                raise AssertionError("opened while its last sync still runs")
        one.disk.let_go()
        with trio.fail_after(20):
            while True:
                try:
                    async with one.node("a"):
                        break
                except dledger.DataFolderLocked:
                    await trio.sleep(0.01)


async def leave_while_it_hangs(one: Process) -> None:
    async with one.node("a"):
        node = await one.leader("a")
        one.disk.hold("/a/")
        node.submit([b"held"], lambda outcome: None)
        await trio.to_thread.run_sync(one.disk.hangs.wait)


async def test_many_disks_that_hang_leave_threads_for_the_group_on_a_good_one(
    tmp_path: Path,
) -> None:
    bad = [f"bad{number}" for number in range(12)]
    async with process(tmp_path) as one, AsyncExitStack() as stack:
        one.disk.slow = "/bad"
        for group in bad:
            await stack.enter_async_context(one.node(group))
        leaders = [await one.leader(group) for group in bad]
        one.disk.hold("/bad")
        for leader in leaders:
            leader.submit([b"held"], lambda outcome: None)
        await trio.to_thread.run_sync(one.disk.hangs.wait)
        with trio.fail_after(20):
            async with one.node("good"):
                await (await one.leader("good")).append(b"served")
        one.disk.let_go()
