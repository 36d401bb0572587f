"""Real nodes, real files, real sockets, in one trio loop."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trio

import dledger
from dledger.free_ports import free_ports
from dledger.store.noop_body import LONGEST_BYTES
from dledger.store.store_config import MIN_SEGMENT_BYTES
from tests.dledger.running_members import ready


class Register:
    """Keeps every body in order; the result of an entry is how many there are."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def apply(self, entries: Sequence[dledger.Entry]) -> list[object]:
        results: list[object] = []
        for entry in entries:
            self.bodies.append(entry.body)
            results.append(len(self.bodies))
        return results


class Group:
    """Members that can be stopped and started again."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        ports = free_ports(nodes)
        self.peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports)}
        self.machines: dict[str, Register] = {}
        self.nodes: dict[str, dledger.Node] = {}
        self.stacks: dict[str, AsyncExitStack] = {}

    def config(self, node_id: str) -> dledger.NodeConfig:
        return dledger.NodeConfig(
            group="g",
            node_id=node_id,
            peers=self.peers,
            data_dir=self.folder / node_id,
            new=True,
            store=dledger.StoreConfig(
                segment_bytes=1 << 20, index_segment_bytes=1 << 16, max_body_bytes=64 * 1024
            ),
            election_timeout_ms=200,
            heartbeat_interval_ms=40,
        )

    async def leader(self) -> dledger.Node:
        return await ready(*self.nodes.values())


@asynccontextmanager
async def running(folder: Path, nodes: int) -> AsyncIterator[Group]:
    group = Group(folder, nodes)
    async with AsyncExitStack() as stack:
        for node_id in group.peers:
            machine = group.machines[node_id] = Register()
            group.nodes[node_id] = await stack.enter_async_context(
                dledger.open_node(group.config(node_id), machine)
            )
        yield group


async def test_an_append_to_a_group_of_one_returns_its_result_and_survives_a_restart(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 1) as group:
        leader = await group.leader()
        appended = await leader.append(b"one")
        assert appended.result == 1
        assert [a.index for a in await leader.append_many([b"two", b"three"])] == [
            appended.index + 1,
            appended.index + 2,
        ]
    group2 = Group(tmp_path, 1)
    group2.peers = group.peers
    machine = Register()
    async with dledger.open_node(group2.config("n0"), machine) as node:
        group2.nodes["n0"] = node
        await group2.leader()
        assert machine.bodies == [b"one", b"two", b"three"]


async def test_a_member_leads_though_its_entries_are_shorter_than_a_no_op(tmp_path: Path) -> None:
    group = Group(tmp_path, 1)
    config = group.config("n0")
    least = MIN_SEGMENT_BYTES + LONGEST_BYTES
    short = replace(config.store, segment_bytes=least, max_body_bytes=0)
    async with dledger.open_node(replace(config, store=short), Register()) as node:
        group.nodes["n0"] = node
        assert await group.leader() is node
        await node.append(b"")
        with pytest.raises(dledger.EntryTooLarge):
            await node.append(b"x")
    with pytest.raises(dledger.ConfigInvalid, match="segment_bytes: has no room"):
        replace(config, store=replace(short, segment_bytes=least - 1))


async def test_three_nodes_apply_the_same_entries_in_the_same_order(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as group:
        leader = await group.leader()
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(leader.append, b"%d" % number)
        index = await leader.read()
        with trio.fail_after(5):
            for node in group.nodes.values():
                await node.wait_applied(index)
        assert len(group.machines["n0"].bodies) == 50
        assert group.machines["n0"].bodies == group.machines["n1"].bodies
        assert group.machines["n1"].bodies == group.machines["n2"].bodies


async def test_a_follower_rejects_an_append_and_names_the_leader(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as group:
        leader = await group.leader()
        await leader.append(b"x")
        follower = next(node for node in group.nodes.values() if node is not leader)
        with trio.fail_after(5):
            async for change in follower.role_changes():
                if change.leader is not None:
                    break
        with pytest.raises(dledger.NotLeader) as caught:
            await follower.append(b"y")
        assert caught.value.leader == leader.config.node_id
        assert caught.value.retry_safe


async def test_committed_yields_every_entry_and_then_waits_for_more(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        leader = await group.leader()
        await leader.append_many([b"a", b"b"])
        seen = []
        with trio.fail_after(5):
            async for entry in leader.committed(0):
                if entry.magic == dledger.Magic.NORMAL:
                    seen.append(entry.body)
                if len(seen) == 2:
                    await leader.append(b"c")
                if len(seen) == 3:
                    break
        assert seen == [b"a", b"b", b"c"]


async def test_a_body_over_the_limit_is_rejected_before_it_enters_the_log(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        leader = await group.leader()
        with pytest.raises(dledger.EntryTooLarge):
            await leader.append(bytes(64 * 1024 + 1))
        assert (await leader.append(b"ok")).result == 1


async def test_a_state_machine_that_raises_stops_the_node_with_its_name(tmp_path: Path) -> None:
    class Broken:
        def apply(self, entries: Sequence[dledger.Entry]) -> list[object]:
            raise ValueError("cannot")

    group = Group(tmp_path, 1)

    async def append_one() -> None:
        async with dledger.open_node(group.config("n0"), Broken()) as node:
            group.nodes["n0"] = node
            await (await group.leader()).append(b"x")

    with pytest.raises(dledger.MachineFailed) as caught:
        await append_one()
    assert isinstance(caught.value.__cause__, ValueError)


async def test_an_address_in_use_is_said_so(tmp_path: Path) -> None:
    group = Group(tmp_path, 1)
    with socket.socket() as taken:
        host, port = group.peers["n0"].split(":")
        taken.bind((host, int(port)))
        taken.listen()
        with pytest.raises(dledger.AddressInUse, match="stop the process"):
            async with dledger.open_node(group.config("n0"), Register()):
                pytest.fail("opened")


async def test_a_cancelled_append_gives_up_the_wait_and_not_the_entry(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        leader = await group.leader()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leader.append, b"abandoned")
            await trio.testing.wait_all_tasks_blocked(0)
            nursery.cancel_scope.cancel()
        await leader.append(b"next")
        assert group.machines["n0"].bodies[-1] == b"next"


async def follower_of(group: Group, leader: dledger.Node) -> dledger.Node:
    """A member that follows that leader, once it knows it."""
    follower = next(node for node in group.nodes.values() if node is not leader)
    with trio.fail_after(5):
        async for change in follower.role_changes():
            if change.leader == leader.config.node_id:
                break
    return follower


async def test_leadership_moves_to_a_named_member_and_back(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as group:
        leader = await group.leader()
        await leader.append(b"before")
        follower = await follower_of(group, leader)
        here, there = leader.config.node_id, follower.config.node_id
        with trio.fail_after(5):
            assert await leader.transfer_leadership(there) == there
            assert (await follower.append(b"after")).result == 2
            assert await follower.transfer_leadership(here) == here
            assert (await leader.append(b"back")).result == 3


async def test_only_the_leader_hands_over_and_only_to_a_member(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as group:
        leader = await group.leader()
        follower = await follower_of(group, leader)
        with pytest.raises(dledger.NotLeader) as caught:
            await follower.transfer_leadership()
        assert caught.value.leader == leader.config.node_id
        with pytest.raises(dledger.TransferFailed, match="n9"):
            await leader.transfer_leadership("n9")
        assert await leader.transfer_leadership(leader.config.node_id) == leader.config.node_id
        await leader.append(b"x")


async def test_a_transfer_to_a_dead_member_fails_and_the_leader_goes_on(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)
    async with AsyncExitStack() as stack:
        for node_id in ("n0", "n1"):
            machine = group.machines[node_id] = Register()
            group.nodes[node_id] = await stack.enter_async_context(
                dledger.open_node(group.config(node_id), machine)
            )
        leader = await group.leader()
        async with trio.open_nursery() as nursery:

            async def refused() -> None:
                with pytest.raises(dledger.TransferFailed, match="election timeout"):
                    await leader.transfer_leadership("n2")

            nursery.start_soon(refused)
            await trio.testing.wait_all_tasks_blocked(0)
            assert leader.status().transfer_target == "n2"
            with pytest.raises(dledger.LeadershipMoving):
                await leader.append(b"meanwhile")
        assert leader.status().transfer_target is None
        assert (await leader.append(b"after")).result == 1


async def test_a_follower_reads_what_was_appended_before(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as group:
        leader = await group.leader()
        follower = await follower_of(group, leader)
        for number in range(20):
            appended = await leader.append(b"%d" % number)
            assert await follower.read() >= appended.index
            assert len(group.machines[follower.config.node_id].bodies) == number + 1


async def test_a_read_without_a_quorum_fails_in_bounded_time(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)
    async with dledger.open_node(group.config("n0"), Register()) as node:
        with trio.fail_after(5), pytest.raises(dledger.ReadUnavailable) as caught:
            await node.read()
        assert caught.value.retry_safe


async def test_a_read_on_a_node_that_stops_is_answered(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)

    async def read(node: dledger.Node) -> None:
        with pytest.raises(dledger.NodeClosing):
            await node.read()

    with trio.fail_after(5):
        async with (
            trio.open_nursery() as nursery,
            dledger.open_node(group.config("n0"), Register()) as node,
        ):
            nursery.start_soon(read, node)
            await trio.testing.wait_all_tasks_blocked(0)


async def test_a_stale_read_is_as_fresh_as_it_was_asked_to_be(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as group:
        leader = await group.leader()
        follower = await follower_of(group, leader)
        appended = await leader.append(b"x")
        for node in (leader, follower):
            with trio.fail_after(5):
                await node.wait_applied(appended.index)
                while _stale_index(node, max_lag_s=1.0) < appended.index:  # noqa: ASYNC110
                    await trio.sleep(0.01)  # until the next heartbeat: nothing tells of it
            with pytest.raises(dledger.ReadUnavailable, match="old"):
                node.read_stale(max_lag_s=-1.0)


def _stale_index(node: dledger.Node, max_lag_s: float) -> int:
    with suppress(dledger.ReadUnavailable):
        return node.read_stale(max_lag_s=max_lag_s)
    return -1


async def test_a_member_without_a_leader_serves_no_stale_read(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)
    async with dledger.open_node(group.config("n0"), Register()) as node:
        with pytest.raises(dledger.ReadUnavailable):
            node.read_stale(max_lag_s=3600.0)


@pytest.mark.parametrize("drift", [0.0, -0.1, 0.5, float("nan")])
def test_a_clock_drift_that_makes_no_sense_is_refused(tmp_path: Path, drift: float) -> None:
    with pytest.raises(dledger.ConfigInvalid, match="max_clock_drift"):
        replace(Group(tmp_path, 1).config("n0"), max_clock_drift=drift)


@pytest.mark.parametrize("hours", [-0.1, float("nan")])
def test_a_scrub_period_that_makes_no_sense_is_refused(tmp_path: Path, hours: float) -> None:
    with pytest.raises(dledger.ConfigInvalid, match="scrub_period_hours"):
        replace(Group(tmp_path, 1).config("n0"), scrub_period_hours=hours)


async def test_a_folder_that_cannot_be_looked_for_is_an_error_of_the_disk(tmp_path: Path) -> None:
    config = replace(Group(tmp_path, 1).config("n0"), data_dir=tmp_path / ("x" * 300))
    with pytest.raises(dledger.DiskFailed, match="File name too long"):
        async with dledger.open_node(config, Register()):
            pass


def test_a_preferred_leader_must_be_a_member(tmp_path: Path) -> None:
    with pytest.raises(dledger.ConfigInvalid, match="preferred_leader"):
        replace(Group(tmp_path, 1).config("n0"), preferred_leader="n9")
