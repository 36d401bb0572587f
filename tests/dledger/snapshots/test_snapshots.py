"""Real nodes whose state machine can be saved: restarts, policy, broken files, full disks."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner

import dledger
from dledger.commands.offline_commands import verify
from dledger.errors import OutsideLog
from dledger.free_ports import free_ports
from dledger.store.hard_state_file import FILE_NAME as HARD_STATE
from dledger.store.scan import scan_folder
from dledger.store.snapshot_folder import SnapshotFolder
from tests.dledger.running_members import ready, until

SEGMENT_BYTES = 4096


class Words:
    """Keeps every body in order. Counts what it was given."""

    snapshot_format = "words/1"

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.applied = 0
        self.restored = 0
        self.hold: Callable[[], None] = lambda: None  # called between two chunks

    def apply(self, entries: Sequence[dledger.Entry]) -> list[object]:
        self.bodies += [entry.body for entry in entries]
        self.applied += len(entries)
        return [len(self.bodies)] * len(entries)

    def snapshot(self) -> Iterator[bytes]:
        frozen = list(self.bodies)

        def chunks() -> Iterator[bytes]:
            for body in frozen:
                self.hold()
                yield body

        return chunks()

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.bodies = list(chunks)
        self.restored = len(self.bodies)


class Member:
    """A group of one, to be started again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peers = {"n0": f"127.0.0.1:{free_ports(1)[0]}"}
        self.machine = Words()
        self.snapshots = folder / "dledger-n0" / "snapshots"

    def config(self, **policy: int) -> dledger.NodeConfig:
        return dledger.NodeConfig(
            group="g",
            node_id="n0",
            peers=self.peers,
            data_dir=self.folder,
            store=dledger.StoreConfig(
                segment_bytes=SEGMENT_BYTES, index_segment_bytes=320, max_body_bytes=1000
            ),
            snapshots=dledger.SnapshotPolicy(**policy),
            election_timeout_ms=100,
            heartbeat_interval_ms=20,
            new=True,
        )

    @asynccontextmanager
    async def running(self, machine: object = None, **policy: int) -> AsyncIterator[dledger.Node]:
        self.machine = machine if isinstance(machine, Words) else Words()
        started = self.machine if machine is None else machine
        with trio.fail_after(20):
            async with dledger.open_node(self.config(**policy), started) as node:  # type: ignore[arg-type]
                await ready(node)
                yield node

    def files(self) -> list[str]:
        return sorted(path.name for path in self.snapshots.iterdir())

    def first_segment(self) -> int:
        return min(int(p.name) for p in (self.folder / "dledger-n0" / "data").iterdir())


@pytest.fixture
def member(tmp_path: Path) -> Member:
    return Member(tmp_path)


def bodies(count: int, start: int = 0) -> list[bytes]:
    return [b"body %d " % number * 6 for number in range(start, start + count)]


async def test_a_restart_replays_only_what_lies_behind_the_snapshot(member: Member) -> None:
    async with member.running() as node:
        await node.append_many(bodies(300))
        snapshot = await node.snapshot()
        assert snapshot.header.index == node.status().applied
        assert (await node.snapshot()) == snapshot
        await node.append_many(bodies(7, 300))
    async with member.running() as node:
        assert member.machine.restored == 300
        assert member.machine.applied == 7
        assert member.machine.bodies == bodies(307)
        assert (await node.append(b"next")).result == 308
        assert node.status().applied > snapshot.header.index


async def test_a_killed_node_begins_with_its_snapshot_though_its_record_is_older(
    member: Member, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = Member(tmp_path_factory.mktemp("killed"))
    record = Path("dledger-n0", HARD_STATE)
    async with member.running() as node:
        older = (member.folder / record).read_bytes()
        await node.append_many(bodies(50))
        snapshot = await node.snapshot()
        shutil.copytree(member.folder, copy.folder, dirs_exist_ok=True)
    (copy.folder / record).write_bytes(older)  # a slow snapshot had time to write it again
    scan = scan_folder(str(copy.folder))
    assert scan.committed < snapshot.header.index
    async with copy.running() as node:
        assert copy.machine.bodies == bodies(50)
        assert (copy.machine.restored, copy.machine.applied) == (50, 0)
        assert (await node.append(b"next")).result == 51


async def test_a_restart_right_behind_a_snapshot_replays_nothing(member: Member) -> None:
    async with member.running() as node:
        await node.append_many(bodies(20))
        await node.snapshot()
    async with member.running() as node:
        assert (member.machine.restored, member.machine.applied) == (20, 0)
        assert member.machine.bodies == bodies(20)


async def test_the_log_before_the_oldest_kept_snapshot_is_dropped(member: Member) -> None:
    async with member.running(trailing_entries=0) as node:
        taken = []
        for round_ in range(4):
            await node.append_many(bodies(300, 300 * round_))
            taken.append(await node.snapshot())
            status = node.status()
            if round_ == 0:
                assert status.first_index == 0  # the first one has nothing to fall back to
            else:
                oldest = taken[-2].header.index
                assert oldest - 100 < status.first_index <= oldest
        assert member.files() == [Path(snapshot.path).name for snapshot in taken[-2:]]
        await until(lambda: member.first_segment() > 0)
        first = node.status().first_index
        with pytest.raises(OutsideLog):
            node.read_bytes(0, 10)
        assert [e.index for e in node.entries(0, 1)] == [first]
    async with member.running() as node:
        assert node.status().first_index == first
        assert member.machine.bodies == bodies(1200)
        assert member.machine.applied == 0


async def test_entries_are_kept_for_members_that_are_behind(member: Member) -> None:
    async with member.running(trailing_entries=450, kept=1) as node:
        for round_ in range(3):
            await node.append_many(bodies(300, 300 * round_))
            await node.snapshot()
        status = node.status()
        assert 0 < status.first_index <= status.applied - 449


@pytest.mark.parametrize("policy", [{"every_entries": 100}, {"every_bytes": 10_000}])
async def test_snapshots_are_written_when_enough_was_applied(
    member: Member, policy: dict[str, int]
) -> None:
    async with member.running(trailing_entries=0, **policy) as node:
        assert member.files() == []
        newest = -1
        for round_ in range(3):
            # One that begins while they are applied leaves too few behind it for the next.
            await node.append_many(bodies(150, 150 * round_))
            before = newest
            await until(lambda: any(int(name[:20]) > before for name in member.files()))  # noqa: B023
            newest = max(int(name[:20]) for name in member.files())
        await until(lambda: node.status().first_index > 0 and member.first_segment() > 0)
        await until(lambda: len(member.files()) == 2)


async def test_nothing_is_written_unless_it_is_asked_for(member: Member) -> None:
    async with member.running() as node:
        await node.append_many(bodies(300))
        await trio.sleep(0.6)
        assert member.files() == []


def break_file(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


async def test_a_broken_newest_snapshot_falls_back_to_the_one_before(
    member: Member, caplog: pytest.LogCaptureFixture
) -> None:
    async with member.running(trailing_entries=0) as node:
        for round_ in range(3):
            await node.append_many(bodies(300, 300 * round_))
            await node.snapshot()
        assert node.status().first_index > 0
    broken = member.snapshots / member.files()[-1]
    break_file(broken)
    async with member.running(trailing_entries=0) as node:
        assert (member.machine.restored, member.machine.applied) == (600, 300)
        assert member.machine.bodies == bodies(900)
        assert str(broken) in caplog.text
        await node.append_many(bodies(5, 900))
        await node.snapshot()
        assert broken.name not in member.files()
        assert len(member.files()) == 2
    async with member.running() as node:
        assert member.machine.bodies == bodies(905)


async def test_a_node_whose_snapshots_are_all_broken_says_what_is_missing(member: Member) -> None:
    async with member.running(trailing_entries=0, kept=1) as node:
        for round_ in range(2):
            await node.append_many(bodies(300, 300 * round_))
            await node.snapshot()
        first = node.status().first_index
    path = member.snapshots / member.files()[0]
    whole = path.read_bytes()
    break_file(path)
    with pytest.raises(dledger.SnapshotLost, match="from another member") as lost:
        async with member.running():
            pytest.fail("opened")
    assert lost.value.first_index == first
    assert str(path) in lost.value.problems[0]
    path.write_bytes(whole)
    async with member.running():
        assert member.machine.bodies == bodies(600)


async def test_verify_reads_snapshots_through(member: Member) -> None:
    async with member.running() as node:
        await node.append_many(bodies(30))
        await node.snapshot()
    assert CliRunner().invoke(verify, [str(member.folder)]).exit_code == 0
    break_file(member.snapshots / member.files()[0])
    told = CliRunner().invoke(verify, [str(member.folder)])
    assert told.exit_code == 1
    assert member.files()[0] in told.output
    assert "CRC" in told.output


async def test_without_the_snapshot_the_whole_log_is_replayed_if_it_is_there(
    member: Member,
) -> None:
    async with member.running() as node:
        await node.append_many(bodies(30))
        await node.snapshot()
    break_file(member.snapshots / member.files()[0])
    async with member.running():
        assert (member.machine.restored, member.machine.applied) == (0, 30)


async def test_a_full_disk_leaves_the_node_serving(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def full(descriptor: int, data: bytes, at: int) -> int:
        if "/snapshots/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "no space left")
        return pwrite(descriptor, data, at)

    async with member.running(every_entries=50) as node:
        monkeypatch.setattr(os, "pwrite", full)
        await node.append_many(bodies(100))
        with pytest.raises(dledger.SnapshotUnavailable, match="no space left"):
            await node.snapshot()
        assert (await node.append(b"served")).result == 101
        assert member.files() == []
        assert node.status().first_index == 0
        monkeypatch.undo()
        await node.snapshot()
        assert len(member.files()) == 1


async def test_appends_go_on_while_a_snapshot_is_written_and_do_not_get_into_it(
    member: Member,
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        assert leave.wait(10)

    async with member.running() as node:
        await node.append_many(bodies(20))
        member.machine.hold = hold
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.snapshot)
            assert await trio.to_thread.run_sync(entered.wait, 10)
            await node.append_many(bodies(500, 20))
            assert member.machine.applied == 520
            leave.set()
    async with member.running():
        assert (member.machine.restored, member.machine.applied) == (20, 500)
        assert member.machine.bodies == bodies(520)


async def test_a_node_that_closes_gives_up_the_snapshot_it_writes(member: Member) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        leave.wait(10)

    outcomes: list[BaseException] = []

    async def take(node: dledger.Node) -> None:
        try:
            with trio.fail_after(5):
                await node.snapshot()
        except dledger.DLedgerError as error:
            outcomes.append(error)

    async with trio.open_nursery() as nursery:
        async with member.running() as node:
            await node.append_many(bodies(20))
            member.machine.hold = hold
            nursery.start_soon(take, node)
            assert await trio.to_thread.run_sync(entered.wait, 10)
            threading.Timer(0.2, leave.set).start()
        assert member.files() == []
    assert [type(error) for error in outcomes] == [dledger.NodeClosing]
    with pytest.raises(dledger.NodeClosing):
        await node.snapshot()


async def test_whoever_waits_is_answered_though_the_node_closes_right_behind_the_writing(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave = threading.Event(), threading.Event()
    write = SnapshotFolder.write

    def slow(*arguments: Any) -> object:
        snapshot = write(*arguments)
        entered.set()
        leave.wait(10)
        return snapshot

    monkeypatch.setattr(SnapshotFolder, "write", slow)
    outcomes: list[str] = []

    async def take(node: dledger.Node) -> None:
        try:
            with trio.fail_after(5):
                outcomes.append(type(await node.snapshot()).__name__)
        except dledger.NodeClosing as error:
            outcomes.append(type(error).__name__)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery, member.running() as node:
            await node.append_many(bodies(20))
            nursery.start_soon(take, node)
            assert await trio.to_thread.run_sync(entered.wait, 10)
            threading.Timer(0.2, leave.set).start()
    assert outcomes == ["NodeClosing"]
    assert len(member.files()) == 1


async def test_a_machine_that_raises_while_it_is_saved_goes_on(member: Member) -> None:
    def fail() -> None:
        raise KeyError("not now")

    async with member.running() as node:
        member.machine.hold = fail
        await node.append_many(bodies(3))
        with pytest.raises(dledger.SnapshotUnavailable, match="not now"):
            await node.snapshot()
        assert (await node.append(b"served")).result == 4
        assert member.files() == []


async def test_a_machine_without_snapshots_has_none_and_never_compacts(member: Member) -> None:
    async with member.running(dledger.LogOnly()) as node:
        await node.append_many(bodies(300))
        with pytest.raises(dledger.SnapshotUnavailable, match="no methods"):
            await node.snapshot()
    with pytest.raises(dledger.ConfigInvalid, match="snapshots"):
        async with member.running(dledger.LogOnly(), every_entries=5):
            pytest.fail("opened")


async def test_a_machine_that_cannot_restore_is_not_given_half_a_log(member: Member) -> None:
    async with member.running(trailing_entries=0, kept=1) as node:
        for round_ in range(2):
            await node.append_many(bodies(300, 300 * round_))
            await node.snapshot()
    with pytest.raises(dledger.SnapshotLost, match="restore"):
        async with member.running(dledger.LogOnly()):
            pytest.fail("opened")


@pytest.mark.parametrize("machine", [None, dledger.LogOnly()], ids=["snapshots", "log-only"])
async def test_a_snapshot_folder_that_cannot_be_listed_stops_the_node_with_a_typed_error(
    member: Member, machine: object
) -> None:
    async with member.running(trailing_entries=0, kept=1) as node:
        for round_ in range(2):
            await node.append_many(bodies(300, 300 * round_))
            await node.snapshot()
    shutil.rmtree(member.snapshots)
    member.snapshots.write_bytes(b"not a folder")
    with pytest.raises(dledger.DiskFailed, match=rf"open {member.snapshots}: .*start the node"):
        async with member.running(machine):
            pytest.fail("opened")


async def test_a_snapshot_of_another_format_or_group_is_not_restored(
    member: Member, caplog: pytest.LogCaptureFixture
) -> None:
    async with member.running() as node:
        await node.append_many(bodies(10))
        await node.snapshot()
    newer = Words()
    newer.snapshot_format = "words/2"
    async with member.running(newer):
        assert (newer.restored, newer.applied) == (0, 10)
    assert "words/1" in caplog.text


async def test_a_machine_that_raises_while_it_restores_stops_the_node(member: Member) -> None:
    class Broken(Words):
        def restore(self, chunks: Iterator[bytes]) -> None:
            raise ValueError("cannot")

    async with member.running() as node:
        await node.append_many(bodies(10))
        await node.snapshot()
    with pytest.raises(dledger.RestoreFailed) as failed:
        async with member.running(Broken()):
            pytest.fail("opened")
    assert isinstance(failed.value.__cause__, ValueError)
    async with member.running():
        assert member.machine.restored == 10


async def test_a_disk_that_fails_while_a_machine_restores_is_not_told_as_its_mistake(
    member: Member,
) -> None:
    class Reading(Words):
        def restore(self, chunks: Iterator[bytes]) -> None:
            raise OSError(errno.EIO, "Input/output error", "a.snapshot")

    async with member.running() as node:
        await node.append_many(bodies(10))
        await node.snapshot()
    with pytest.raises(dledger.ResourceRefused, match=r"a\.snapshot: the disk fails"):
        async with member.running(Reading()):
            pytest.fail("opened")


async def test_a_reader_that_the_logs_beginning_overtook_is_told(member: Member) -> None:
    async with member.running(trailing_entries=0, kept=1) as node:
        await node.append_many(bodies(300))
        reader = node.committed(0)
        assert (await anext(reader)).index == 0
        for round_ in range(1, 3):
            await node.append_many(bodies(300, 300 * round_))
        await node.snapshot()
        first = node.status().first_index
        seen = 0
        with pytest.raises(OutsideLog) as outside:  # noqa: PT012 - what it still has comes first
            async for entry in reader:
                seen = entry.index
        assert outside.value.asked == seen + 1 < outside.value.first == first
        assert (await anext(node.committed(0))).index == first


class Trio:
    """Three members that compact eagerly, all in one loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}

    def config(self, node_id: str) -> dledger.NodeConfig:
        return dledger.NodeConfig(
            group="g",
            node_id=node_id,
            peers=self.peers,
            data_dir=self.folder / node_id,
            new=True,
            store=dledger.StoreConfig(
                segment_bytes=SEGMENT_BYTES, index_segment_bytes=320, max_body_bytes=1000
            ),
            snapshots=dledger.SnapshotPolicy(every_entries=100, trailing_entries=50),
            election_timeout_ms=1000,  # three nodes share one loop
            heartbeat_interval_ms=100,
        )

    @asynccontextmanager
    async def running(self, machines: dict[str, Words]) -> AsyncIterator[list[dledger.Node]]:
        """These members; the first of them leads."""
        with trio.fail_after(30):
            async with AsyncExitStack() as stack:
                nodes = [
                    await stack.enter_async_context(dledger.open_node(self.config(name), machine))
                    for name, machine in machines.items()
                ]
                await ready(*nodes)
                nodes.sort(key=lambda node: not node.is_ready_leader)
                yield nodes


async def append_until_compacted(nodes: Sequence[dledger.Node]) -> None:
    number = 0
    while any(node.status().first_index == 0 for node in nodes):
        await nodes[0].append_many(bodies(50, number))
        number += 50
        await trio.sleep(0.05)


async def test_members_compact_on_their_own_and_fail_over(tmp_path: Path) -> None:
    group = Trio(tmp_path)
    machines = {name: Words() for name in group.peers}
    async with group.running(machines) as nodes:
        await append_until_compacted(nodes)
        index = await nodes[0].read()
        for node in nodes:
            await node.wait_applied(index)
        wanted = machines["n0"].bodies
        assert all(machine.bodies == wanted for machine in machines.values())
        assert len({node._store.chain_at(index) for node in nodes}) == 1
        saved = {node.config.node_id: await node.snapshot() for node in nodes}
    # n1 loses its own snapshots: those of any member serve.
    own = tmp_path / "n1" / "dledger-n1" / "snapshots"
    shutil.rmtree(own)
    own.mkdir()
    shutil.copy(saved["n0"].path, own)
    again = Words()
    async with group.running({"n1": again, "n2": Words()}) as nodes:
        await nodes[0].append(b"after")
        index = await nodes[0].read()
        for node in nodes:
            await node.wait_applied(index)
        assert again.bodies == [*wanted, b"after"]
        assert (again.restored, again.applied) == (len(wanted), 1)
