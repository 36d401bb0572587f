"""Members that come back with an older folder, or twice: real nodes."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import dledger
from dledger.commands.group_alarms import group_alarms
from dledger.commands.offline_commands import dump
from dledger.core.orphans import Orphans
from dledger.errors import ReadUnavailable
from dledger.free_ports import free_ports
from dledger.metrics.exposition import rendered
from dledger.serving import lasting_refusals
from dledger.store.set_aside import set_aside
from tests.dledger.node.test_group_birth import some
from tests.dledger.node.test_node import Group, Register
from tests.dledger.running_members import until

LOST = [b"lost %d" % number for number in range(40)]


async def caught_up(group: Group, leader: dledger.Node) -> None:
    await until(
        lambda: all(
            node.status().applied == leader.status().last_index for node in group.nodes.values()
        )
    )


def lost_range(group: Group) -> Orphans | None:
    """What n1 holds and the group lost, once all members tell the same; None before.

    At first it may be too short: the sums of the leader's entries show where the logs part.
    """
    handler = group.nodes["n1"]._replica.handler
    told = {
        tuple(alarm.text for alarm in node.status().alarms if alarm.kind == "orphans")
        for node in group.nodes.values()
    }
    lost = handler.orphans
    if not handler._sums_compared or lost is None or len(told) != 1:
        return None
    return lost if str(lost) in str(told) else None


async def late_mount(group: Group) -> None:
    """n2 starts once with an empty folder and helps to commit; then it has its old folder again."""
    async with some(group, "n0", "n1", "n2"):
        leader = await group.leader()
        await leader.append(b"kept")
        await caught_up(group, leader)
    (group.folder / "n2").rename(group.folder / "disk")
    async with some(group, "n0", "n1", "n2"):
        await group.leader()
        await until(lambda: group.nodes["n2"].status().proven)
    async with some(group, "n1", "n2"):
        leader = await group.leader()
        await leader.append_many(LOST)
        await caught_up(group, leader)
    shutil.rmtree(group.folder / "n2")
    (group.folder / "disk").rename(group.folder / "n2")
    async with some(group, "n0", "n2"):
        leader = await group.leader()
        await leader.append(b"newer")


async def test_what_a_group_lost_by_a_late_mount_is_kept_told_of_and_appended_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(tmp_path, 3)
    await late_mount(group)
    async with some(group, "n0", "n1", "n2"):
        leader = await group.leader()
        told = "n1 holds the committed entries"
        await until(lambda: lost_range(group) is not None)
        for node in group.nodes.values():
            status, tally = node.status(), node.tally
            assert status.alarms[0].text.startswith(told)
            labels = f'group="g",kind="orphans",member="n1",node="{status.node_id}"'
            assert (
                f"dledger_alarm{{{labels}}} 1.0" in b"".join(rendered([(status, tally)])).decode()
            )
        of_all = {name: node.status().as_dict() for name, node in group.nodes.items()}
        (alarm,) = [alarm for alarm in group_alarms(of_all) if told in alarm.text]
        assert alarm.severity == 0
        lines = {(r.name, r.levelname) for r in caplog.records if told in r.getMessage()}
        assert lines == {
            ("dledger.node.node", "ERROR"),
            ("dledger.serving.identity_guard", "WARNING"),
        }
        with pytest.raises(ReadUnavailable, match=told):
            await group.nodes["n1"].read()
        # The others go on, also past the end of what n1 has.
        await leader.append_many([b"newer %d" % number for number in range(80)])
    async with some(group, "n0", "n1", "n2"):  # a restart forgets nothing
        await group.leader()
        await until(lambda: lost_range(group) is not None)
        lost = lost_range(group)
        assert lost is not None
    # The steps of the page: read them from the folder, append them again, set the folder aside.
    range_options = ["--from", str(lost.first), "--to", str(lost.last)]
    dumped = CliRunner().invoke(dump, ["--bodies", *range_options, str(tmp_path / "n1")])
    assert dumped.exit_code == 0
    assert dumped.stdout_bytes.splitlines() == LOST
    set_aside(str(tmp_path / "n1"))
    async with some(group, "n0", "n1", "n2"):
        leader = await group.leader()
        await leader.append_many(dumped.stdout_bytes.splitlines())
        await caught_up(group, leader)
        assert not any(node.status().alarms for node in group.nodes.values())
        for machine in group.machines.values():
            assert [body for body in machine.bodies if body.startswith(b"lost")] == LOST


async def test_a_second_process_with_a_copied_folder_is_refused_and_told_of_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting_refusals, "LASTING_S", 0.3)
    group = Group(tmp_path, 3)
    async with some(group, "n0", "n1", "n2"):
        await caught_up(group, await group.leader())
    shutil.copytree(tmp_path / "n1", tmp_path / "clone")
    async with some(group, "n0", "n1", "n2"):
        leader = await group.leader()
        await leader.append(b"one")
        term = leader.status().term
        config = group.config("n1")
        elsewhere = {**group.peers, "n1": f"127.0.0.1:{free_ports(1)[0]}"}
        async with AsyncExitStack() as stack:
            clone = await stack.enter_async_context(
                dledger.open_node(
                    dledger.NodeConfig(
                        group="g",
                        node_id="n1",
                        peers=elsewhere,
                        data_dir=tmp_path / "clone",
                        store=config.store,
                        election_timeout_ms=200,
                        heartbeat_interval_ms=40,
                    ),
                    Register(),
                )
            )
            seeing = [group.nodes["n0"], group.nodes["n2"], clone]
            await until(lambda: all(node.status().alarms for node in seeing))
            for node in seeing:
                assert {(a.kind, a.member) for a in node.status().alarms} == {
                    ("second_process", "n1")
                }
            assert not clone.status().ready
            await leader.append(b"two")
            await caught_up(group, leader)
        assert (leader.status().role, leader.status().term) == ("leader", term)
        assert group.machines["n1"].bodies == [b"one", b"two"]


class Asking(Group):
    """A group of which one member has long to ask what the others remember, on a busy machine too.

    It asks for half an election timeout.
    """

    asking = ""

    def config(self, node_id: str) -> dledger.NodeConfig:
        timeout_ms = 4000 if node_id == self.asking else 200
        return replace(super().config(node_id), election_timeout_ms=timeout_ms)


@pytest.mark.parametrize("victim", ["the leader", "a follower"])
async def test_a_folder_that_is_restored_from_a_copy_is_not_believed_before_it_is_proven(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, victim: str
) -> None:
    group = Asking(tmp_path, 3)
    async with some(group, "n0", "n1", "n2"):
        leader = await group.leader()
        await leader.append(b"one")
        await caught_up(group, leader)
    for name in group.peers:
        shutil.copytree(tmp_path / name, tmp_path / f"{name} of yesterday")
    async with AsyncExitStack() as others:
        await others.enter_async_context(some(group, *group.peers))
        leader = await group.leader()
        await leader.append_many([b"more"] * 20)
        await caught_up(group, leader)
        led = leader.status().node_id
        name = led if victim == "the leader" else next(n for n in group.peers if n != led)
    # All but the victim would go on: here they begin again, and remember nothing of yesterday.
    nodes = [other for other in group.peers if other != name]
    async with some(group, *nodes):
        async with some(group, name):
            leader = await group.leader()
            await leader.append_many([b"again"] * 20)
            await caught_up(group, leader)
        group.machines.pop(name)
        shutil.rmtree(tmp_path / name)
        (tmp_path / f"{name} of yesterday").rename(tmp_path / name)
        group.asking = name
        async with some(group, name):
            await until(lambda: group.nodes[name].status().applied >= 42)
            await until(lambda: group.nodes[name].status().proven)
            (line,) = {r.getMessage() for r in caplog.records if "older copy" in r.getMessage()}
            assert line.startswith(f"the folder of {name} is an older copy, ")
            assert group.machines[name].bodies[1:] == [b"more"] * 20 + [b"again"] * 20
