"""Real nodes that are behind the others' logs: they take a snapshot, and go on as if never away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
import trio

import dledger
from dledger.core.agenda import Agenda
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.errors import OutsideLog, SnapshotLost
from dledger.node.node_status import peer_status
from dledger.snapshots.restoring import open_and_restore
from dledger.snapshots.snapshot_notes import snapshot_notes
from dledger.status import InstallStatus, PeerStatus
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.scan import scan_folder
from tests.dledger.core.core_group import EntriesAtOnce, view_of
from tests.dledger.running_members import ready, until
from tests.dledger.snapshots.test_snapshots import (
    Trio,
    Words,
    append_until_compacted,
    bodies,
)


def same_log(nodes: Sequence[dledger.Node]) -> bool:
    """Whether all have the same bytes wherever their logs overlap."""
    first = max(node.status().first_index for node in nodes)
    last = nodes[0].status().committed
    logs = []
    for node in nodes:
        found, index = b"", first
        while index <= last:
            end, raw = node._store.read_run(index, last, 1 << 20)
            found, index = found + raw, end + 1
        logs.append(found)
    return len(logs[0]) > 0 and len(set(logs)) == 1


async def caught_up(nodes: Sequence[dledger.Node]) -> None:
    index = await nodes[0].read()
    with trio.fail_after(15):
        for node in nodes:
            await node.wait_applied(index)


async def test_a_new_and_empty_member_catches_up_by_a_snapshot(tmp_path: Path) -> None:
    group = Trio(tmp_path)
    machines = {name: Words() for name in ("n0", "n1")}
    async with group.running(machines) as nodes:
        await append_until_compacted(nodes)
        empty = Words()
        async with dledger.open_node(group.config("n2"), empty) as behind:
            await caught_up([*nodes, behind])
            assert empty.restored > 0
            assert empty.bodies == machines["n0"].bodies
            assert behind.status().first_index > 0
            assert behind.status().newest_snapshot >= behind.status().first_index
            assert behind.status().installing is None
            assert same_log([*nodes, behind])
            await nodes[0].append_many(bodies(30, 10_000))
            await caught_up([*nodes, behind])
            assert empty.bodies == machines["n1"].bodies
        assert scan_folder(str(tmp_path / "n2")).verify() == []
        again = Words()
        async with dledger.open_node(group.config("n2"), again) as behind:
            await caught_up([*nodes, behind])
            assert again.bodies == machines["n0"].bodies


async def test_a_member_that_was_away_catches_up_while_appends_go_on(tmp_path: Path) -> None:
    group = Trio(tmp_path)
    machines = {name: Words() for name in group.peers}
    async with group.running({name: machines[name] for name in ("n0", "n1")}) as nodes:
        async with dledger.open_node(group.config("n2"), machines["n2"]) as away:
            await nodes[0].append_many(bodies(20))
            await caught_up([*nodes, away])
        await append_until_compacted(nodes)
        stop = False

        async def load() -> None:
            number = 50_000
            while not stop:
                await nodes[0].append_many(bodies(5, number))
                number += 5

        back = Words()
        async with (
            trio.open_nursery() as nursery,
            dledger.open_node(group.config("n2"), back) as node,
        ):
            nursery.start_soon(load)
            reader = node.committed(0)
            with pytest.raises(OutsideLog):  # noqa: PT012 - first what it still has
                async for entry in reader:
                    assert entry.index < 30
            await caught_up([*nodes, node])
            stop = True
            await trio.sleep(0.1)
            await caught_up([*nodes, node])
            assert await node.read() >= node.status().first_index
            assert back.bodies == machines["n0"].bodies
            assert same_log([*nodes, node])
            assert (await anext(node.committed(0))).index == node.status().first_index


async def test_a_member_with_another_program_refuses_and_keeps_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class NewWords(Words):
        snapshot_format = "words/2"

    group = Trio(tmp_path)
    async with group.running({"n0": Words(), "n1": Words()}) as nodes:
        await append_until_compacted(nodes)
        other = NewWords()
        async with dledger.open_node(group.config("n2"), other) as behind:
            await until(lambda: "does not take" in (nodes[0].status().peers["n2"].problem or ""))
            assert (behind.status().last_index, other.bodies) == (-1, [])
            assert any("words/2" in record.getMessage() for record in caplog.records)
            await nodes[0].append(b"the group goes on")


async def test_a_member_whose_machine_takes_no_snapshots_refuses(tmp_path: Path) -> None:
    group = Trio(tmp_path)
    async with group.running({"n0": Words(), "n1": Words()}) as nodes:
        await append_until_compacted(nodes)
        config = group.config("n2")
        plain = dledger.NodeConfig(
            group="g",
            node_id="n2",
            peers=config.peers,
            data_dir=config.data_dir,
            store=config.store,
            election_timeout_ms=1000,
        )
        async with dledger.open_node(plain, dledger.LogOnly()) as behind:
            await until(lambda: "does not take" in (nodes[0].status().peers["n2"].problem or ""))
            assert behind.status().last_index == -1


def break_in_the_middle(path: str) -> None:
    content = bytearray(Path(path).read_bytes())
    content[len(content) // 2] ^= 1
    Path(path).write_bytes(content)


async def test_a_leader_whose_newest_snapshot_is_broken_sends_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    group = Trio(tmp_path)
    machines = {"n0": Words(), "n1": Words()}
    async with group.running(machines) as nodes:
        await append_until_compacted(nodes)
        break_in_the_middle((await nodes[0].snapshot()).path)
        empty = Words()
        async with dledger.open_node(group.config("n2"), empty) as behind:
            await caught_up([*nodes, behind])
            assert empty.bodies == machines["n0"].bodies
        assert any("cannot be sent" in record.getMessage() for record in caplog.records)


async def test_a_machine_that_cannot_take_the_leaders_snapshot_stops_its_node(
    tmp_path: Path,
) -> None:
    class Broken(Words):
        def restore(self, chunks: Iterator[bytes]) -> None:
            raise ValueError("no")

    group = Trio(tmp_path)
    async with group.running({"n0": Words(), "n1": Words()}) as nodes:
        await append_until_compacted(nodes)
        with pytest.raises(dledger.RestoreFailed), trio.fail_after(15):
            async with dledger.open_node(group.config("n2"), Broken()):
                await trio.sleep_forever()
        fine = Words()
        async with dledger.open_node(group.config("n2"), fine) as behind:
            await caught_up([*nodes, behind])
            assert fine.bodies[:10] == bodies(10)


async def test_a_stale_read_is_refused_while_the_state_is_being_replaced(tmp_path: Path) -> None:
    inside, go_on = trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    class Slow(Words):
        def restore(self, chunks: Iterator[bytes]) -> None:
            trio.from_thread.run_sync(inside.set, trio_token=token)
            trio.from_thread.run(go_on.wait, trio_token=token)
            super().restore(chunks)

    group = Trio(tmp_path)
    async with group.running({"n0": Words(), "n1": Words()}) as nodes:
        async with dledger.open_node(group.config("n2"), Words()) as early:
            await nodes[0].append_many(bodies(20, 99_000))
            await caught_up([*nodes, early])
        await append_until_compacted(nodes)
        slow = Slow()
        async with dledger.open_node(group.config("n2"), slow) as behind:
            with trio.fail_after(10):
                await inside.wait()
            with pytest.raises(dledger.ReadUnavailable, match="replaced"):
                behind.read_stale(max_lag_s=float("inf"))
            with pytest.raises(dledger.ReadUnavailable, match=r"by .*, and the read needs"):
                await behind.read()
            with pytest.raises(dledger.SnapshotUnavailable):
                await behind.snapshot()
            assert slow.applied <= 20
            # The files of the old log go at once, not when the state machine is ready.
            begin = behind.status().first_index
            try:
                await until(lambda: first_file(tmp_path) > 0)
            finally:
                go_on.set()
            assert behind.status().first_index == begin
            await caught_up([*nodes, behind])
            behind.read_stale(max_lag_s=10.0)


def first_file(tmp_path: Path) -> int:
    """Where the data files of n2 begin."""
    return min(int(path.name) for path in (tmp_path / "n2" / "dledger-n2" / "data").iterdir())


def halfway(tmp_path: Path) -> tuple[Trio, Words]:
    """n2's folder as a crash leaves it behind the new log's beginning."""
    group = Trio(tmp_path)
    words = Words()

    async def make() -> None:
        async with group.running({"n0": words, "n1": Words()}) as nodes:
            await append_until_compacted(nodes)
            snapshot = await nodes[0].snapshot()
            store = nodes[0]._store
            begin = store.begin_for(snapshot.header.index)
            other = open_store(OsDisk(), str(tmp_path / "n2"), group.config("n2").store, "g", "n2")
            other.restart(begin)
            other.close()
            folder = tmp_path / "n2" / "dledger-n2" / "snapshots"
            folder.mkdir()
            shutil.copy(snapshot.path, folder)

    trio.run(make)
    return group, words


def test_a_log_that_does_not_reach_its_snapshot_yet_waits_for_it(tmp_path: Path) -> None:
    group, words = halfway(tmp_path)
    machine = Words()
    opened = open_and_restore(OsDisk(), group.config("n2"), machine)
    assert opened.restored is None
    assert opened.awaited is not None
    assert opened.awaited.header.index > opened.store.last_index
    assert machine.bodies == []
    opened.store.close()

    async def again() -> None:
        machines = {"n0": Words(), "n1": Words(), "n2": machine}
        async with group.running(machines) as nodes:
            await caught_up(nodes)
            assert machine.restored > 0
            assert machine.bodies == words.bodies
            assert same_log(nodes)

    trio.run(again)


def test_a_log_without_a_beginning_and_without_any_snapshot_is_refused(tmp_path: Path) -> None:
    group, _ = halfway(tmp_path)
    for path in (tmp_path / "n2" / "dledger-n2" / "snapshots").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SnapshotLost):
        open_and_restore(OsDisk(), group.config("n2"), Words())


class Connected:
    peer, connected, last_problem = "n1", True, None


def test_a_peer_that_needs_what_nobody_has_is_named_in_the_status() -> None:
    dispatcher = EntryDispatcher("n1", 1, view_of([1] * 9), EntriesAtOnce(9), 0.0, Agenda())
    assert peer_status(Connected(), dispatcher, 0.0).problem is None  # type: ignore[arg-type]
    dispatcher.lacks_snapshot = True
    status = peer_status(Connected(), dispatcher, 0.0)  # type: ignore[arg-type]
    assert status.problem is not None
    assert "no snapshot to send" in status.problem
    [note] = snapshot_notes({"n0": {"role": "leader", "peers": {"n1": asdict(status)}}})
    assert note == f"n1 {status.problem}"


def test_the_status_says_how_far_a_snapshot_has_come() -> None:
    status = PeerStatus(True, "INSTALL_SNAPSHOT", -1, 7, True, None, InstallStatus(300, 5, 80))
    peers = {"n1": asdict(status)}
    notes = snapshot_notes({"n0": {"role": "leader", "peers": peers}, "n2": {"problem": "down"}})
    assert notes == ["n0 sends n1 the snapshot of entry 300: 5 of 80 bytes"]
    assert snapshot_notes({"n0": {"role": "follower", "peers": peers}}) == []


async def test_a_member_that_joins_by_an_older_snapshot_never_says_that_it_was_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    group = Trio(tmp_path)
    alone = {"n0": group.peers["n0"]}
    first = group.config("n0").with_changes({"peers": alone})
    second = group.config("n1").with_changes({"joining": True, "new": False})
    roles: list[str] = []
    async with dledger.open_node(first, Words()) as leader, trio.open_nursery() as nursery:
        await ready(leader)
        await append_until_compacted([leader])
        # The newest snapshot is of a time before the member is admitted.
        await leader.append_many(bodies(30, 99_000))
        async with dledger.open_node(second, Words()) as joining:

            async def watch() -> None:
                async for change in joining.role_changes():
                    roles.append(change.role)

            nursery.start_soon(watch)
            with trio.fail_after(20):
                await leader.change([dledger.AddVoter("n1", group.peers["n1"])])
                await joining.read()
            await until(lambda: joining.status().role == "follower")
            assert joining.status().first_index > 0
            nursery.cancel_scope.cancel()
    assert "removed" not in roles
    assert roles[0] == "joining"
    assert "no longer belongs" not in caplog.text
