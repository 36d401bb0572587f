"""Groups of real nodes whose members change while they run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

import dledger
from dledger.errors import MessageMalformed
from dledger.node.local_way import local_way
from dledger.sessions.session_gate import SessionGate
from dledger.wire.change_protocol import ChangeRequest, decode_change, encode_change
from dledger.wire.client_protocol import Operation, Request
from tests.dledger.node.test_node import Group, Register
from tests.dledger.running_members import until


class Changing(Group):
    """A group whose nodes come and go."""

    def config(self, node_id: str) -> dledger.NodeConfig:
        # Long enough for a busy machine: a leader that is deposed meanwhile is no error.
        config = replace(super().config(node_id), election_timeout_ms=500)
        founders = dict(list(self.peers.items())[: self.founders])
        if node_id in founders:
            return replace(config, peers=founders)
        return replace(config, peers={node_id: self.peers[node_id]}, joining=True, new=False)

    def __init__(self, folder: Path, founders: int, others: int, nursery: trio.Nursery) -> None:
        super().__init__(folder, founders + others)
        self.founders = founders
        self.nursery = nursery
        self.stops: dict[str, trio.Event] = {}
        self.ends: dict[str, trio.Event] = {}

    async def start(self, node_id: str) -> dledger.Node:
        """Run a node in a task of its own, so that nodes can stop in any order."""
        self.machines[node_id] = Register()
        node: dledger.Node = await self.nursery.start(self._run, node_id)
        return node

    async def _run(
        self, node_id: str, task_status: trio.TaskStatus[dledger.Node] = trio.TASK_STATUS_IGNORED
    ) -> None:
        stop, self.stops[node_id] = trio.Event(), trio.Event()
        self.ends[node_id] = stop
        try:
            async with dledger.open_node(self.config(node_id), self.machines[node_id]) as node:
                self.nodes[node_id] = node
                task_status.started(node)
                await self.stops[node_id].wait()
        finally:
            stop.set()

    async def stop(self, node_id: str) -> None:
        del self.nodes[node_id]
        self.stops[node_id].set()
        await self.ends[node_id].wait()

    def voter(self, node_id: str) -> dledger.AddVoter:
        return dledger.AddVoter(node_id, self.peers[node_id])

    def learner(self, node_id: str) -> dledger.AddLearner:
        return dledger.AddLearner(node_id, self.peers[node_id])

    async def append(self, body: bytes) -> dledger.Appended:
        """On whoever leads, again until it is done."""
        while True:
            node = await self.leader()
            try:
                return await node.append(body)
            except (dledger.Rejected, dledger.Discarded, dledger.LeadershipLost):
                await trio.sleep(0.01)

    async def agreed(self, *node_ids: str) -> None:
        """Wait until these have applied the same."""
        await until(
            lambda: len({tuple(self.machines[node_id].bodies) for node_id in node_ids}) == 1
        )


@asynccontextmanager
async def changing(folder: Path, founders: int, others: int = 0) -> AsyncIterator[Changing]:
    async with trio.open_nursery() as nursery:
        group = Changing(folder, founders, others, nursery)
        for number in range(founders):
            await group.start(f"n{number}")
        await group.leader()
        yield group
        for node_id in list(group.nodes):
            await group.stop(node_id)


def voters(node: dledger.Node) -> set[str]:
    return set(node.configuration.configuration.voters)


async def test_a_fourth_member_gets_the_log_and_votes(tmp_path: Path) -> None:
    async with changing(tmp_path, 3, 1) as group:
        leader = await group.leader()
        await leader.append_many([b"%d" % number for number in range(50)])
        joining = await group.start("n3")
        assert joining.status().role == "joining"
        index, configuration = await leader.change([group.voter("n3")])
        assert set(configuration.voters) == {"n0", "n1", "n2", "n3"}
        assert leader.configuration == (index, configuration)
        await leader.append(b"last")
        await group.agreed("n0", "n3")
        assert joining.configuration == leader.configuration
        assert joining.status().members.addresses == group.peers
        await group.stop("n1")
        await group.append(b"three of four")
        await (await group.leader()).transfer_leadership("n3")
        assert (await group.leader()).config.node_id == "n3"


async def test_a_joining_node_remembers_its_group_when_it_starts_again(tmp_path: Path) -> None:
    async with changing(tmp_path, 1, 1) as group:
        leader = await group.leader()
        await group.start("n1")
        await leader.change([group.voter("n1")])
        await leader.append(b"both")
        await group.stop("n1")
        again = await group.start("n1")
        await until(lambda: voters(again) == {"n0", "n1"})
        await group.append(b"both again")
        await group.agreed("n0", "n1")


async def test_the_leader_can_be_removed_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    async with changing(tmp_path, 3) as group:
        acknowledged: list[bytes] = []
        over = False

        async def load(client: int) -> None:
            number = 0
            while not over:
                body = b"%d/%d" % (client, number)
                try:
                    await (await group.leader()).append(body)
                    acknowledged.append(body)
                except (dledger.Rejected, dledger.OutcomeUnknown, dledger.Discarded):
                    await trio.sleep(0.005)
                number += 1

        async with trio.open_nursery() as nursery:
            for client in range(4):
                nursery.start_soon(load, client)
            await trio.sleep(0.3)
            old = await group.leader()
            name = old.config.node_id
            _, configuration = await old.change([dledger.Remove(name)])
            assert name not in configuration.voters
            await group.stop(name)
            before = len(acknowledged)
            await until(lambda: len(acknowledged) >= before + 20)
            over = True
        await group.append(b"last")
        rest = sorted(group.nodes)
        await group.agreed(*rest)
        assert set(acknowledged) <= set(group.machines[rest[0]].bodies)
        assert len(rest) == 2


async def test_a_removed_node_says_so_and_disturbs_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with changing(tmp_path, 3) as group:
        leader = await group.leader()
        removed = next(name for name in group.nodes if name != leader.config.node_id)
        await leader.change([dledger.Remove(removed)])
        node = group.nodes[removed]
        await until(lambda: node.status().role == "removed")
        assert "no longer belongs to group g" in caplog.text
        term = leader.term
        await trio.sleep(2.0)  # several election timeouts
        assert (leader.term, leader.is_ready_leader) == (term, True)
        with pytest.raises(dledger.NotLeader):
            await node.append(b"too late")
        with pytest.raises(dledger.ReadUnavailable):
            await node.read()
        # And after a restart by the settings that still name it.
        await group.stop(removed)
        again = await group.start(removed)
        await trio.sleep(1.0)
        assert again.status().role == "removed"
        assert (leader.term, leader.is_ready_leader) == (term, True)


@pytest.mark.parametrize("at_once", [True, False])
async def test_all_three_members_can_be_replaced(tmp_path: Path, at_once: bool) -> None:
    async with changing(tmp_path, 3, 3) as group:
        await group.append(b"before")
        for name in ("n3", "n4", "n5"):
            await group.start(name)
        steps = [("n0", "n3"), ("n1", "n4"), ("n2", "n5")]
        if at_once:
            leader = await group.leader()
            changes = [group.voter(new) for _, new in steps]
            await leader.change([*changes, *(dledger.Remove(old) for old, _ in steps)])
            for old, _ in steps:
                await group.stop(old)
        else:
            for old, new in steps:
                leader = await group.leader()
                await leader.change([group.voter(new), dledger.Remove(old)])
                await group.stop(old)
                await group.append(b"without " + old.encode())
        await group.append(b"after")
        await group.agreed("n3", "n4", "n5")
        assert group.machines["n3"].bodies[0] == b"before"
        assert group.machines["n3"].bodies[-1] == b"after"
        assert voters(await group.leader()) == {"n3", "n4", "n5"}


async def test_a_learner_serves_reads_and_takes_no_part_in_decisions(tmp_path: Path) -> None:
    async with changing(tmp_path, 1, 1) as group:
        leader = await group.leader()
        learner = await group.start("n1")
        await leader.change([group.learner("n1")])
        appended = await leader.append(b"read me")
        with trio.fail_after(5):
            assert await learner.read() >= appended.index
        assert group.machines["n1"].bodies == [b"read me"]
        assert learner.status().role == "learner"
        status = leader.status().members
        assert (status.voters, list(status.learners)) == (["n0"], ["n1"])
        await until(lambda: leader.status().members.learners["n1"].lag_entries == 0)
        await group.stop("n1")
        await leader.append(b"without the learner")


async def test_a_change_says_why_it_is_refused(tmp_path: Path) -> None:
    async with changing(tmp_path, 2, 1) as group:
        leader = await group.leader()
        other = next(node for node in group.nodes.values() if node is not leader)
        with pytest.raises(dledger.NotLeader):
            await other.change([dledger.Remove("n0")])
        with pytest.raises(dledger.ConfigurationMoved):
            await leader.change([dledger.Remove("n0")], expected=5)
        with pytest.raises(dledger.MemberUnknown):
            await leader.change([dledger.Promote("n9")])
        with pytest.raises(dledger.NotJoint):
            await leader.change([])
        before = leader.configuration
        assert await leader.change([dledger.Remove("n9")]) == before
        # A node that does not run takes nothing, and stays a learner.
        with trio.fail_after(20), pytest.raises(dledger.LearnerStalled):
            await leader.change([group.voter("n2")])
        assert set(leader.configuration.configuration.learners) == {"n2"}
        with trio.move_on_after(0.2) as scope:
            await leader.change([dledger.Promote("n2")])
        assert scope.cancelled_caught
        await group.start("n2")
        with trio.fail_after(20):
            await leader.change([dledger.Promote("n2")])
        assert voters(leader) == {"n0", "n1", "n2"}


async def test_a_joint_phase_can_be_ended_by_hand(tmp_path: Path) -> None:
    async with changing(tmp_path, 3) as group:
        leader = await group.leader()
        other = next(name for name in group.nodes if name != leader.config.node_id)
        transition = dledger.Transition.JOINT_MANUAL
        _, joint = await leader.change([dledger.Remove(other)], transition=transition)
        assert joint.is_joint
        assert leader.status().members.outgoing == ["n0", "n1", "n2"]
        with pytest.raises(dledger.AlreadyJoint):
            await leader.change([dledger.Demote(other)])
        _, ended = await leader.change([])
        assert set(ended.voters) == {"n0", "n1", "n2"} - {other}


async def test_a_client_follows_the_members(tmp_path: Path) -> None:
    async with changing(tmp_path, 1, 1) as group:
        client = dledger.GroupClient("g", {"n0": group.peers["n0"]})
        await group.start("n1")
        changes = [group.voter("n1"), dledger.Remove("n0")]
        index, configuration = await client.change(changes, timeout_s=5)
        assert set(configuration.voters) == {"n1"}
        await group.stop("n0")
        ((at, _, _),) = await client.append([b"to the one who stayed"], 5)
        assert at > index
        await group.agreed("n1")
        assert group.machines["n1"].bodies[-1] == b"to the one who stayed"


async def test_a_session_of_a_member_follows_the_members(tmp_path: Path) -> None:
    async with changing(tmp_path, 1, 1) as group:
        leader = await group.leader()
        await leader.change([group.learner("n1")])

        class Follower:
            """A member that began with another group than the one it knows now."""

            config = group.config("n1")
            configuration = leader.configuration
            is_ready_leader = False

            async def entries_from(self, first: int, wait_s: float) -> list[dledger.Entry]:
                return []

        # Its settings name nobody but itself, and it does not run.
        gate = SessionGate(leader, dledger.WithSessions(Register()))
        async with local_way(Follower(), gate) as way:
            await way.reach()


# --- changes on the wire --------------------------------------------------------------------------


def requested(request: ChangeRequest) -> ChangeRequest:
    operation, numbers, payload = encode_change(request)
    return decode_change(Request(1, operation, numbers, payload))


@pytest.mark.parametrize("expected", [None, -1, 7])
@pytest.mark.parametrize("transition", list(dledger.Transition))
def test_every_change_arrives_as_it_was_asked_for(
    expected: int | None, transition: dledger.Transition
) -> None:
    changes = [
        dledger.AddVoter("a", "a.example:1"),
        dledger.AddLearner("b", "b.example:1"),
        dledger.UpdateAddress("c", "c.example:1"),
        dledger.Promote("d"),
        dledger.Demote("e"),
        dledger.Remove("f"),
    ]
    request = ChangeRequest(changes, transition, expected)
    assert requested(request) == request
    assert requested(ChangeRequest([])) == ChangeRequest([])


@pytest.mark.parametrize(
    ("numbers", "payload"),
    [
        ([], b"\x90"),
        ([3], b"\x90"),
        ([0, 0, 0], b"\x90"),
        ([0], b"\xc1"),
        ([0], b"\x80"),
        ([0], b"\x91\x90"),
        ([0], b"\x91\x92\xa6remove\x01"),
        ([0], b"\x91\x92\xa6remove\xa1/"),
        ([0], b"\x91\x92\xa3add\xa1a"),
        ([0], b"\x91\x93\xa3add\xa1a\xa1b"),
        ([0], b"\xdc\x00\x60" + b"\x92\xa6remove\xa1a" * 96),
    ],
)
def test_a_request_that_is_no_change_is_malformed(numbers: list[int], payload: bytes) -> None:
    with pytest.raises(MessageMalformed):
        decode_change(Request(1, Operation.CHANGE, numbers, payload))
