"""Retention decided by the state machine: the rule, real nodes, images of killed ones, a group."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import dledger
from dledger.errors import OutsideLog
from dledger.free_ports import free_ports
from dledger.snapshots.log_retention import first_kept, kept_with_new_snapshots, log_kept_from
from tests.dledger.running_members import ready, until

SEGMENT_BYTES = 4096
KEEP = b"keep from "


class Ledger:
    """Keeps the bodies from the entry on that the last `keep from` entry named."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.kept_from = 0
        self.applied = 0

    def apply(self, entries: Sequence[dledger.Entry]) -> list[object]:
        for entry in entries:
            self.applied += 1
            self.bodies[entry.index] = entry.body
            if entry.body.startswith(KEEP):
                self.kept_from = max(self.kept_from, int(entry.body[len(KEEP) :]))
        self._forget()
        return [None] * len(entries)

    def _forget(self) -> None:
        for index in [index for index in self.bodies if index < self.kept_from]:
            del self.bodies[index]

    def log_kept_from(self) -> int:
        return self.kept_from


class SavedLedger(Ledger):
    """The same with snapshots."""

    snapshot_format = "ledger/1"

    def snapshot(self) -> Iterator[bytes]:
        frozen = [b"%d" % self.kept_from]
        frozen += [b"%d %s" % pair for pair in self.bodies.items()]
        return iter(frozen)

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.kept_from = int(next(chunks))
        pairs = (chunk.split(b" ", 1) for chunk in chunks)
        self.bodies = {int(index): body for index, body in pairs}


class Members:
    """A group in one loop, to be started again and again."""

    def __init__(self, folder: Path, count: int = 1) -> None:
        self.folder = folder
        self.peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(count))}
        self.machines: dict[str, Ledger] = {}

    def config(self, node_id: str, policy: dict[str, int]) -> dledger.NodeConfig:
        return dledger.NodeConfig(
            group="g",
            node_id=node_id,
            peers=self.peers,
            data_dir=self.folder / node_id,
            store=dledger.StoreConfig(
                segment_bytes=SEGMENT_BYTES, index_segment_bytes=320, max_body_bytes=1000
            ),
            snapshots=dledger.SnapshotPolicy(**{"trailing_entries": 0, **policy}),
            election_timeout_ms=1000 if len(self.peers) > 1 else 100,
            heartbeat_interval_ms=100 if len(self.peers) > 1 else 20,
            new=True,
        )

    @asynccontextmanager
    async def running(
        self, kind: type[Ledger], wrapped: bool = False, **policy: int
    ) -> AsyncIterator[list[dledger.Node]]:
        """All members, the leader first."""
        async with AsyncExitStack() as stack:
            nodes = []
            for node_id in self.peers:
                machine = self.machines[node_id] = kind()
                opened = dledger.open_node(
                    self.config(node_id, policy),
                    dledger.WithSessions(machine) if wrapped else machine,
                )
                nodes.append(await stack.enter_async_context(opened))
            await ready(*nodes)
            yield sorted(nodes, key=lambda node: not node.is_ready_leader)

    def first_segment(self, node_id: str = "n0") -> int:
        data = self.folder / node_id / f"dledger-{node_id}" / "data"
        return min(int(path.name) for path in data.iterdir())


def bodies(count: int, start: int = 0) -> list[bytes]:
    return [b"body %d " % number * 6 for number in range(start, start + count)]


async def keep_from(node: dledger.Node, index: int) -> None:
    await node.append(KEEP + b"%d" % index)


# --- the rule -------------------------------------------------------------------------------------

policies = st.builds(
    lambda kept, trailing: dledger.SnapshotPolicy(kept=kept, trailing_entries=trailing),
    st.integers(1, 4),
    st.integers(0, 50),
)
snapshot_lists = st.none() | st.lists(st.integers(0, 100), max_size=4, unique=True).map(
    lambda found: sorted(found, reverse=True)
)


@given(policies, st.integers(-1, 120), snapshot_lists, st.none() | st.integers(-5, 150))
def test_nothing_is_dropped_that_anybody_needs(
    policy: dledger.SnapshotPolicy,
    applied: int,
    snapshots: list[int] | None,
    kept_from: int | None,
) -> None:
    first = first_kept(policy, applied, snapshots, kept_from)
    assert first >= 0
    dropped = range(first)
    assert all(index < applied for index in dropped)
    assert all(index <= applied - policy.trailing_entries for index in dropped)
    if kept_from is not None:
        assert all(index < kept_from for index in dropped)
    if snapshots is None:
        assert not dropped or kept_from is not None
    else:
        assert not dropped or len(snapshots) >= policy.kept
        assert all(index <= snapshot for index in dropped for snapshot in snapshots)


@given(policies, st.integers(0, 120), st.integers(0, 150))
def test_new_snapshots_let_go_of_all_that_old_ones_do(
    policy: dledger.SnapshotPolicy, applied: int, kept_from: int
) -> None:
    wanted = kept_with_new_snapshots(policy, applied, kept_from)
    for oldest in range(policy.kept, applied + 1, 7):
        snapshots = list(range(oldest, oldest - policy.kept, -1))
        assert first_kept(policy, applied, snapshots, kept_from) <= wanted


def test_only_machines_that_say_what_they_keep_are_asked() -> None:
    ledger = Ledger()
    asked = log_kept_from(ledger)
    assert asked is not None
    ledger.kept_from = 7
    assert asked() == 7
    assert log_kept_from(dledger.LogOnly()) is None


def test_sessions_pass_retention_on_only_where_the_table_is_saved() -> None:
    assert log_kept_from(dledger.WithSessions(SavedLedger())) is not None
    # Without a snapshot the session table needs the log from its beginning.
    assert log_kept_from(dledger.WithSessions(Ledger())) is None


# --- one node -------------------------------------------------------------------------------------


async def test_a_machine_without_snapshots_lets_go_of_what_it_does_not_need(
    tmp_path: Path,
) -> None:
    group = Members(tmp_path)
    async with group.running(Ledger) as (node,):
        await node.append_many(bodies(300))
        await trio.sleep(0.6)
        assert node.status().first_index == 0
        await keep_from(node, 200)
        await until(lambda: node.status().first_index > 0 and group.first_segment() > 0)
        first = node.status().first_index
        assert first == node.segment_begin(200).first_index <= 200
        with pytest.raises(OutsideLog):
            node.read_bytes(0, 10)
        with pytest.raises(OutsideLog):
            node.segment_begin(0)
        assert [entry.index for entry in node.entries(0, 1)] == [first]
        wanted = group.machines["n0"].bodies
    async with group.running(Ledger) as (node,):
        assert node.status().first_index == first
        again = group.machines["n0"]
        assert (again.bodies, again.kept_from) == (wanted, 200)
        assert again.applied < 302


async def test_snapshots_do_not_drop_what_the_machine_keeps(tmp_path: Path) -> None:
    group = Members(tmp_path)
    async with group.running(SavedLedger, every_entries=50) as (node,):
        for round_ in range(3):
            await node.append_many(bodies(150, 150 * round_))
            await node.snapshot()
        await trio.sleep(0.6)
        assert node.status().first_index == 0
        await keep_from(node, 250)
        await until(lambda: node.status().first_index > 0)
        assert node.status().first_index == node.segment_begin(250).first_index


async def test_retention_waits_for_snapshots_and_has_them_written(tmp_path: Path) -> None:
    group = Members(tmp_path)
    async with group.running(SavedLedger, every_entries=1_000_000) as (node,):
        await node.append_many(bodies(300))
        await keep_from(node, 250)
        snapshots = tmp_path / "n0" / "dledger-n0" / "snapshots"
        await until(lambda: any(snapshots.iterdir()))
        await trio.sleep(0.4)
        assert node.status().first_index == 0  # one alone is not enough
        await node.append(b"one more")
        await until(lambda: node.status().first_index > 0)
        assert node.status().first_index == node.segment_begin(250).first_index
        written = sorted(path.name for path in snapshots.iterdir())
        await node.append(b"another one")
        await trio.sleep(0.6)
        assert sorted(path.name for path in snapshots.iterdir()) == written
    async with group.running(SavedLedger) as (node,):
        assert group.machines["n0"].kept_from == 250
        assert group.machines["n0"].applied <= 2


async def test_without_a_policy_retention_waits_for_snapshots_by_hand(tmp_path: Path) -> None:
    group = Members(tmp_path)
    async with group.running(SavedLedger, kept=1) as (node,):
        await node.append_many(bodies(300))
        await keep_from(node, 250)
        await trio.sleep(0.6)
        assert node.status().first_index == 0
        await node.snapshot()
        assert node.status().first_index == node.segment_begin(250).first_index


async def test_an_index_that_does_not_exist_yet_keeps_the_last_applied_entry(
    tmp_path: Path,
) -> None:
    group = Members(tmp_path)
    async with group.running(Ledger) as (node,):
        await node.append_many(bodies(300))
        await keep_from(node, 1_000_000)
        await until(lambda: node.status().first_index > 0)
        await node.append_many(bodies(20))
        status = node.status()
        assert status.first_index <= status.applied
        assert node.entries(status.applied, 1)[0].index == status.applied


async def test_trailing_entries_stay_whatever_the_machine_says(tmp_path: Path) -> None:
    group = Members(tmp_path)
    async with group.running(Ledger, trailing_entries=120) as (node,):
        await node.append_many(bodies(300))
        await keep_from(node, 290)
        await until(lambda: node.status().first_index > 0)
        status = node.status()
        assert status.first_index <= status.applied - 119


async def test_a_machine_that_raises_when_it_is_asked_stops_the_node(tmp_path: Path) -> None:
    class Broken(Ledger):
        def log_kept_from(self) -> int:
            raise KeyError("kept")

    with pytest.raises(dledger.MachineFailed):
        async with Members(tmp_path).running(Broken):
            await trio.sleep(5)


async def test_sessions_over_a_machine_with_retention_drop_the_log_too(tmp_path: Path) -> None:
    group = Members(tmp_path)
    async with group.running(SavedLedger, wrapped=True, every_entries=50, kept=1) as (node,):
        async with node.session() as session:
            await session.append(b"once")
        await node.append_many(bodies(300))
        await keep_from(node, 250)
        await until(lambda: node.status().first_index > 0)


# --- crashes, and several members -----------------------------------------------------------------


def copy_unless_removed(source: str, target: str) -> None:
    """What another thread removes meanwhile was given up before: the record says so already."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


@pytest.mark.parametrize("kind", [Ledger, SavedLedger])
async def test_an_image_of_the_folder_at_any_moment_starts_with_all_that_is_kept(
    tmp_path: Path, kind: type[Ledger]
) -> None:
    group = Members(tmp_path / "live")
    images: list[tuple[Path, int, dict[int, bytes]]] = []
    async with group.running(kind, every_entries=60 if kind is SavedLedger else 0) as (node,):
        for round_ in range(12):
            await node.append_many(bodies(40, 40 * round_))
            await keep_from(node, max(0, node.status().applied - 60))
            if round_ % 3 == 2:
                await trio.sleep(0.3)
            image = tmp_path / f"image {round_}"
            # No await in between: what is acknowledged is in the image.
            shutil.copytree(group.folder, image, copy_function=copy_unless_removed)
            machine = group.machines["n0"]
            images.append((image, machine.kept_from, dict(machine.bodies)))
        assert node.status().first_index > 0
    for image, kept, wanted in images:
        copy = Members(image)
        async with copy.running(kind, every_entries=60 if kind is SavedLedger else 0) as (node,):
            machine = copy.machines["n0"]
            assert machine.kept_from == kept
            assert machine.bodies == wanted
            assert node.status().first_index <= kept
            await node.append(b"goes on")


async def test_every_member_gets_the_same_beginning(tmp_path: Path) -> None:
    group = Members(tmp_path, 3)
    async with group.running(SavedLedger, every_entries=70) as nodes:
        leader = nodes[0]
        for round_ in range(4):
            await leader.append_many(bodies(100, 100 * round_))
            cut = max(0, leader.status().applied - 150)
            await keep_from(leader, cut)
        await leader.append_many(bodies(200))
        begin = leader.segment_begin(cut).first_index
        assert begin > 0
        with trio.fail_after(20):
            while any(node.status().first_index != begin for node in nodes):
                await leader.append(b"a second snapshot needs something new")
                await trio.sleep(0.1)
        index = await leader.read()
        for node in nodes:
            await node.wait_applied(index)
        states = [machine.bodies for machine in group.machines.values()]
        assert states[0] == states[1] == states[2]
        await until(lambda: len({group.first_segment(node_id) for node_id in group.peers}) == 1)
        reader = leader.committed(0)
        assert (await anext(reader)).index == begin
