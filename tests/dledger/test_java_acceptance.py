"""Java DLedger's own test table, where no other test says the same.

docs/java-tests.md maps the whole table.
"""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import dledger
from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.messages import Message, PushRequest
from dledger.entry import Magic
from dledger.errors import LogCorrupt
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from tests.dledger.core.core_group import Group, Member
from tests.dledger.node.test_node import Group as NodeGroup
from tests.dledger.node.test_node import Register, running

THREE = ["n0", "n1", "n2"]
# So long that a follower is stopped, or back, before its leader gives up, on a busy machine too.
SLOW_ELECTION_MS = 1500
# Twelve files for a hundred entries of 1 KiB, as in Java's test.
TEN_KIB = StoreConfig(segment_bytes=10 * 1024, index_segment_bytes=960, max_body_bytes=2048)


class StoppableGroup(NodeGroup):
    """Nodes in tasks of their own, so that each can be stopped and started by itself."""

    def __init__(self, folder: Path, nodes: int, nursery: trio.Nursery, **settings: int) -> None:
        super().__init__(folder, nodes)
        self.nursery = nursery
        self.settings = settings
        self.stops: dict[str, trio.Event] = {}
        self.stopped: dict[str, trio.Event] = {}

    def config(self, node_id: str) -> dledger.NodeConfig:
        return dataclasses.replace(super().config(node_id), **self.settings)  # type: ignore[arg-type]

    async def start(self, node_id: str) -> None:
        self.nodes[node_id] = await self.nursery.start(self._run, node_id)

    async def _run(
        self, node_id: str, task_status: trio.TaskStatus[dledger.Node] = trio.TASK_STATUS_IGNORED
    ) -> None:
        stop = self.stops[node_id] = trio.Event()
        stopped = self.stopped[node_id] = trio.Event()
        machine = self.machines[node_id] = Register()
        async with dledger.open_node(self.config(node_id), machine) as node:
            task_status.started(node)
            await stop.wait()
        stopped.set()

    async def stop(self, node_id: str) -> None:
        self.stops[node_id].set()
        await self.stopped[node_id].wait()


class Answers:
    """What became of submissions."""

    def __init__(self, wanted: int) -> None:
        self.outcomes: list[object] = []
        self.complete = trio.Event()
        self._wanted = wanted

    def take(self, outcome: object) -> None:
        self.outcomes.append(outcome)
        if len(self.outcomes) == self._wanted:
            self.complete.set()


@asynccontextmanager
async def two_nodes(
    folder: Path, **settings: int
) -> AsyncIterator[tuple[StoppableGroup, dledger.Node, str]]:
    """A group of two, its leader, and the id of the other one."""
    async with trio.open_nursery() as nursery:
        group = StoppableGroup(folder, 2, nursery, **settings)
        for node_id in group.peers:
            await group.start(node_id)
        leader = await group.leader()
        [follower] = [node_id for node_id in group.peers if node_id != leader.config.node_id]
        yield group, leader, follower
        for stop in group.stops.values():
            stop.set()


def reopen(base: Path) -> SegmentStore:
    return open_store(OsDisk(), str(base), TEN_KIB, "g", "n0")


def hundred_entries(base: Path, committed: int = -1) -> list[Path]:
    """A closed store of 100 entries of 1 KiB; its data files."""
    store = reopen(base)
    store.append(1, Magic.NORMAL, [b"\xff" * 1024] * 100)
    store.begin_sync(HardState(1, "n0")).run()
    store.note_committed(committed)
    store.close()
    return sorted((base / "dledger-n0" / "data").iterdir())


# --- elections ------------------------------------------------------------------------------------


def test_every_member_in_turn_can_be_made_leader_ten_times() -> None:
    group = Group([[], [], []])
    for number in range(30):
        name = THREE[number % 3]
        group.elect(name)
        group.pass_time(0.1)
        assert [one for one in THREE if group[one].role is Role.LEADER] == [name]
        assert {group[one].term for one in THREE} == {number + 1}


def test_a_follower_that_restarts_changes_neither_leader_nor_term() -> None:
    group = Group([[], [], []])
    group.elect("n1")
    group.propose("n1", 5)
    group.pass_time(0.5)
    stopped = group["n0"]
    state = stopped.replica.state.hard_state
    group.members["n0"] = Member("n0", THREE, stopped.log, state, now=group.now)
    group["n1"].replica.unreachable("n0", group.now)
    group["n1"].replica.reachable("n0", group.now)
    group.pass_time(3.0)
    assert [group[name].role for name in THREE] == [Role.FOLLOWER, Role.LEADER, Role.FOLLOWER]
    assert {group[name].term for name in THREE} == {1}
    assert {group[name].committed for name in THREE} == {5}


def test_entries_whose_acknowledgements_were_lost_are_committed_by_the_next_leader() -> None:
    # The entry is on all three, its leader stops before it hears so.
    group = Group([[], [], []])
    group.elect("n0")
    index = group.propose("n0", 1)
    group.run(dropped=lambda sender, receiver, message: receiver == "n0")
    assert group["n0"].committed < index
    assert {group[name].replica.view.last_index for name in THREE} == {index}
    group.silent = {"n0"}
    group.elect("n1")
    assert group["n1"].committed == index + 1
    group.silent = set()
    group.pass_time(1.0)
    assert {tuple(group[name].log) for name in THREE} == {tuple(group["n1"].log)}
    assert {group[name].committed for name in THREE} == {index + 1}


# --- replication ----------------------------------------------------------------------------------


def test_every_third_push_of_entries_is_lost_and_each_append_is_committed() -> None:
    group = Group([[], []], batch=1)
    group.elect("n0")
    pushes = 0

    def third(sender: str, receiver: str, message: Message) -> bool:
        nonlocal pushes
        entries = isinstance(message, PushRequest) and bool(message.runs)
        pushes += entries
        return entries and pushes % 3 == 0

    for _ in range(10):
        index = group.propose("n0", 1)
        deadline = group.now + 3.0
        while group["n0"].committed < index:
            group.now += 0.02
            assert group.now < deadline
            group["n0"].replica.tick(group.now)
            group.run(dropped=third)
    assert group["n1"].log == group["n0"].log
    assert pushes > 10


async def test_appends_that_no_quorum_answers_end_and_more_than_may_wait_are_refused(
    tmp_path: Path,
) -> None:
    settings = {"max_pending_entries": 20, "election_timeout_ms": SLOW_ELECTION_MS}
    async with two_nodes(tmp_path, **settings) as members:
        group, leader, follower = members
        await leader.append(b"both have it")
        await group.stop(follower)
        answers = Answers(20)
        for number in range(20):
            leader.submit([b"%d" % number], answers.take)
        with pytest.raises(dledger.LogFull) as full:
            leader.submit([b"one too many"], answers.take)
        assert full.value.pending_entries == 20
        with trio.fail_after(10):
            await answers.complete.wait()
        assert {type(outcome) for outcome in answers.outcomes} == {dledger.LeadershipLost}
        with pytest.raises(dledger.NotLeader):
            leader.submit([b"later"], answers.take)


async def test_an_append_that_waits_for_a_follower_is_committed_when_it_returns(
    tmp_path: Path,
) -> None:
    async with two_nodes(tmp_path, election_timeout_ms=SLOW_ELECTION_MS) as members:
        group, leader, follower = members
        for number in range(2):
            await group.stop(follower)
            answers = Answers(1)
            leader.submit([b"waits %d" % number], answers.take)
            with trio.move_on_after(0.1):
                await answers.complete.wait()
            assert answers.outcomes == []
            await group.start(follower)
            with trio.fail_after(10):
                await answers.complete.wait()
            assert isinstance(answers.outcomes[0], list)
        assert group.machines[leader.config.node_id].bodies == [b"waits 0", b"waits 1"]


# --- what an append and a read answer ------------------------------------------------------------


async def test_the_position_that_an_append_answers_is_where_the_entry_lies(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        leader = await group.leader()
        appended = await leader.append_many([b"x" * size for size in (0, 100, 100, 7)])
        for answer, size in zip(appended, (0, 100, 100, 7), strict=True):
            [entry] = [e for e in leader.entries(answer.index, 1 << 16) if e.index == answer.index]
            assert (entry.pos, entry.term) == (answer.pos, answer.term)
            assert leader.read_bytes(entry.body_pos, size) == b"x" * size
            assert entry.magic == Magic.NORMAL
        positions = [answer.pos for answer in appended]
        assert positions == [positions[0] + gap for gap in (0, 48, 196, 344)]


async def test_an_empty_body_is_an_entry_like_any_other(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        leader = await group.leader()
        assert (await leader.append(b"")).result == 1
        assert group.machines["n0"].bodies == [b""]


async def test_a_read_sees_the_write_before_it_also_when_the_value_is_written_again(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 3) as group:
        leader = await group.leader()
        machine = group.machines[leader.config.node_id]
        await leader.read()
        assert machine.bodies == []
        for value in (b"10", b"20"):
            appended = await leader.append(value)
            # A no-op for a member that began late may follow: not by what is applied afterwards.
            assert await leader.read() >= appended.index >= 1
            assert machine.bodies[-1] == value


async def test_whoever_is_no_leader_names_the_one_that_is_and_its_term(tmp_path: Path) -> None:
    # Java's METADATA answers carry term -1: a client cannot tell whose claim is newer.
    async with running(tmp_path, 3) as group:
        leader = await group.leader()
        index = (await leader.append(b"x")).index
        for node in group.nodes.values():
            with trio.fail_after(5):
                await node.wait_applied(index)
            if node is leader:
                continue
            with pytest.raises(dledger.NotLeader) as caught:
                await node.append(b"y")
            assert caught.value.leader == leader.config.node_id
            assert caught.value.term == leader.term >= 1
            assert node.status().as_dict()["term"] == leader.term


async def test_a_node_listens_on_its_own_address_and_on_no_other(tmp_path: Path) -> None:
    # Java listens on all addresses of the machine.
    async with running(tmp_path, 1) as group:
        host, port = group.peers["n0"].split(":")
        assert host == "127.0.0.1"
        with socket.socket() as own:
            own.connect((host, int(port)))
        with socket.socket() as other, pytest.raises(ConnectionRefusedError):
            other.connect(("127.0.0.2", int(port)))


# --- the store ------------------------------------------------------------------------------------


def test_a_log_that_lost_its_last_two_files_is_refused_up_to_what_is_committed(
    tmp_path: Path,
) -> None:
    # Java opens it with 89 of 100 entries, whatever was committed.
    files = hundred_entries(tmp_path, committed=95)
    assert len(files) == 12
    for path in files[-2:]:
        path.unlink()
    with pytest.raises(LogCorrupt, match="recorded as committed"):
        reopen(tmp_path)


def test_a_log_that_lost_its_last_two_files_ends_before_them_if_nothing_there_was_committed(
    tmp_path: Path,
) -> None:
    for path in hundred_entries(tmp_path, committed=50)[-2:]:
        path.unlink()
    store = reopen(tmp_path)
    assert store.last_index == 89
    store.append(2, Magic.NORMAL, [b"goes on"])
    store.close()
    again = reopen(tmp_path)
    assert (again.last_index, again.last_term) == (90, 2)
    again.close()
