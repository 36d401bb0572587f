"""Members on disks that fill up: nobody ends, appends are refused, and room is found again."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

import dledger
from dledger.commands.group_alarms import group_alarms
from dledger.free_ports import free_ports
from dledger.metrics.exposition import rendered
from dledger.serving.platform import Platform
from tests.dledger.full_disk import FullDisk
from tests.dledger.running_members import ready, until

MIB = 1 << 20
STORE = dledger.StoreConfig(
    segment_bytes=1 << 18,
    index_segment_bytes=1 << 14,
    max_body_bytes=1 << 16,
    spare_segments=0,
    reserve_bytes=1 << 18,
)
BODY = os.urandom(10_000)


class Counter:
    """Counts entries; its snapshot is the count."""

    snapshot_format = "count/1"

    def __init__(self) -> None:
        self.count = 0

    def apply(self, entries: Sequence[dledger.Entry]) -> list[object]:
        self.count += len(entries)
        return [None] * len(entries)

    def snapshot(self) -> Iterator[bytes]:
        return iter([b"%d" % self.count])

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.count = int(b"".join(chunks))


class Group:
    """Members of one group, each on a disk of its own."""

    def __init__(self, folder: Path, rooms: Sequence[int]) -> None:
        names = [f"n{number}" for number in range(len(rooms))]
        ports = free_ports(len(rooms))
        self.folder = folder
        self.peers = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
        self.disks = {name: FullDisk(room) for name, room in zip(names, rooms, strict=True)}
        self.nodes: dict[str, dledger.Node] = {}

    @asynccontextmanager
    async def running(self, **settings: object) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for name, disk in self.disks.items():
                config = dledger.NodeConfig(
                    group="g",
                    node_id=name,
                    peers=self.peers,
                    data_dir=self.folder / name,
                    store=STORE,
                    **settings,  # type: ignore[arg-type]
                )
                platform = Platform(disk=disk, disk_space=disk.space)
                node = await stack.enter_async_context(
                    dledger.open_node(config, Counter(), platform)
                )
                self.nodes[name] = node
            yield

    async def leader(self) -> dledger.Node:
        return await ready(*self.nodes.values())

    async def append_one(self) -> dledger.Appended:
        """One entry, by whoever leads; through the moves of leadership that a full disk caused."""
        with trio.fail_after(20):
            while True:
                try:
                    return await (await self.leader()).append(BODY)
                except dledger.Rejected:
                    await trio.sleep(0.02)

    async def fill(self) -> int:
        """Append until that is refused; how many entries were acknowledged."""
        leader, acknowledged = await self.leader(), 0
        while True:
            try:
                acknowledged += len(await leader.append_many([BODY] * 5))
            except dledger.DiskFull:
                return acknowledged
            except dledger.DLedgerError:  # another leads now
                await trio.sleep(0.02)
                leader = await self.leader()


async def test_a_full_leader_refuses_appends_and_goes_on_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(tmp_path, [2 * MIB])
    async with group.running():
        acknowledged = await group.fill()
        node = group.nodes["n0"]
        assert acknowledged > 50
        with pytest.raises(dledger.DiskFull, match="free some of"):
            await node.append(b"x")
        alarms = group_alarms({"n0": node.status().as_dict()})
        assert any("takes no appends" in alarm.text for alarm in alarms)
        assert b'dledger_disk_short{group="g",node="n0"} 1.0' in b"".join(
            rendered([(node.status(), node.tally)])
        )
        group.disks["n0"].room_bytes += 4 * MIB
        await until(lambda: node.disk_short is None)
        await node.append(BODY)
        assert node.status().applied >= acknowledged
    assert [record.levelname for record in caplog.records if "room" in record.message] == [
        "WARNING"
    ]


async def test_three_members_that_fill_up_together_go_on_when_there_is_room(tmp_path: Path) -> None:
    group = Group(tmp_path, [2 * MIB] * 3)
    async with group.running():
        acknowledged = await group.fill()
        await trio.sleep(1)  # followers have what they were sent
        for disk in group.disks.values():
            disk.room_bytes += 4 * MIB
        await until(lambda: all(node.disk_short is None for node in group.nodes.values()))
        assert (await group.append_one()).index >= acknowledged


async def test_a_follower_with_a_full_disk_waits_for_room_and_follows_again(tmp_path: Path) -> None:
    group = Group(tmp_path, [8 * MIB] * 3)
    async with group.running():
        leader = await group.leader()
        name = next(name for name in group.nodes if name != leader.config.node_id)
        disk, node = group.disks[name], group.nodes[name]
        disk.room_bytes -= disk.free_bytes - (1 << 19)
        await leader.append_many([BODY] * 5)
        for _ in range(40):
            await leader.append_many([BODY] * 5)
        await until(lambda: node.disk_short is not None)
        assert node.status().last_index < leader.status().last_index
        disk.room_bytes += 8 * MIB
        last = (await leader.append(BODY)).index
        await until(lambda: node.status().applied >= last)


async def test_a_leader_whose_disk_alone_is_full_lets_another_lead(tmp_path: Path) -> None:
    group = Group(tmp_path, [16 * MIB] * 3)
    async with group.running():
        leader = await group.leader()
        name, term = leader.config.node_id, leader.term
        await leader.append_many([BODY] * 5)
        disk = group.disks[name]
        disk.room_bytes -= disk.free_bytes - (1 << 17)
        await until(
            lambda: any(
                node.is_ready_leader for other, node in group.nodes.items() if other != name
            )
        )
        other = await group.leader()
        assert other.term == term + 1
        for _ in range(5):
            await other.append(BODY)
        assert leader.disk_short is not None


async def test_a_full_disk_frees_itself_by_one_snapshot_while_nothing_is_appended(
    tmp_path: Path,
) -> None:
    group = Group(tmp_path, [3 * MIB])
    policy = dledger.SnapshotPolicy(every_entries=1_000_000, trailing_entries=0)
    async with group.running(snapshots=policy):
        await group.fill()
        node = group.nodes["n0"]
        await until(lambda: node.disk_short is None)
        assert node.status().first_index > 0
        await node.append(BODY)
