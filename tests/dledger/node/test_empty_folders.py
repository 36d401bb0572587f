"""Real nodes that start with empty folders: which of them begin a group, and which wait."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

import dledger
from dledger.core.admission.beginning import HOLD_TIMEOUTS
from dledger.core.membership.change_errors import GrowthNotNoted
from dledger.node.host import HostConfig, open_host
from dledger.serving.platform import Platform
from dledger.store.disk import OsDisk, OsDiskFile
from tests.dledger.node.test_node_members import Changing, changing
from tests.dledger.running_members import ready, until

TIMEOUT_MS = 200
# A member says that it waits, and could have begun long ago.
LONG_ENOUGH_S = 1.5 * HOLD_TIMEOUTS * TIMEOUT_MS / 1000

Open = Callable[
    [dledger.NodeConfig, dledger.StateMachine], AbstractAsyncContextManager[dledger.Node]
]


@asynccontextmanager
async def hosted(
    config: dledger.NodeConfig, machine: dledger.StateMachine
) -> AsyncIterator[dledger.Node]:
    """A member in a process with room for other groups."""
    async with (
        open_host(HostConfig(address=str(config.address))) as host,
        host.open_node(config, machine) as node,
    ):
        yield node


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def settings(group: Changing, name: str, **changes: object) -> dledger.NodeConfig:
    """Of a member of the group, as its own command has them: nothing says that it is new."""
    config = replace(group.config(name), new=False, election_timeout_ms=TIMEOUT_MS)
    return config.with_changes(changes)


async def grow(group: Changing) -> None:
    """A group of one becomes one of three, and another member leads it."""
    leader = await group.leader()
    await leader.append(b"first")
    for name in ("n1", "n2"):
        await group.start(name)
        await leader.change([group.voter(name)])
    await leader.transfer_leadership("n1")
    await group.append(b"grown")


async def stays_down(node: dledger.Node) -> str:
    """It begins nothing, however long it is alone; return what it says of that."""
    await trio.sleep(LONG_ENOUGH_S)
    status = node.status()
    assert (status.role, status.proven, status.last_index) == ("follower", False, -1)
    with pytest.raises(dledger.Rejected):
        await node.append(b"a fork")
    assert status.not_begun is not None
    return status.not_begun


def empty(group: Changing, name: str) -> None:
    shutil.rmtree(group.folder / name)


def notes(group: Changing) -> list[Path]:
    """Those beside the data folders."""
    return list(group.folder.glob(".dledger-has-grown-*"))


def lose_notes(group: Changing) -> None:
    for note in notes(group):
        note.unlink()


async def test_a_list_of_one_begins_its_group_without_further_words(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        group = Changing(tmp_path, 1, 0, nursery)
        with trio.fail_after(5):
            async with dledger.open_node(settings(group, "n0"), dledger.LogOnly()) as node:
                await (await ready(node)).append(b"begun")
        assert not notes(group)


@pytest.mark.parametrize("lost", ["", "home", "beside"])
@pytest.mark.parametrize("opened", [dledger.open_node, hosted])
async def test_the_first_member_of_a_grown_group_that_was_emptied_waits_and_joins(
    tmp_path: Path, home: Path, lost: str, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async with changing(tmp_path, 1, 2) as group:
        await grow(group)
        for name in list(group.nodes):
            await group.stop(name)
        empty(group, "n0")
        if lost == "home":
            shutil.rmtree(home)
        if lost == "beside":
            lose_notes(group)
        config = settings(group, "n0")
        async with opened(config, dledger.LogOnly()) as node:
            with caplog.at_level(logging.WARNING):
                said = await stays_down(node)
            assert "has members besides its first voters" in said
            assert "--new" in said
            assert caplog.messages.count(said) == 1
            for name in ("n1", "n2"):
                await group.start(name)
            await group.append(b"one group")
            await until(lambda: node.status().proven and node.status().not_begun is None)
            await until(lambda: node.status().last_index == group.nodes["n1"].status().last_index)
            await until(lambda: node.status().birth == group.nodes["n1"].status().birth)


async def test_a_member_without_any_note_waits_for_the_calls_of_the_others(
    tmp_path: Path, home: Path
) -> None:
    async with changing(tmp_path, 1, 2) as group:
        await grow(group)
        await group.stop("n0")
        empty(group, "n0")
        shutil.rmtree(home)
        lose_notes(group)
        await trio.sleep(1.0)  # by now the others call seldom
        async with dledger.open_node(settings(group, "n0"), dledger.LogOnly()) as node:
            await until(lambda: node.status().proven)
            await until(lambda: node.status().birth == group.nodes["n1"].status().birth)
            await until(lambda: bool(notes(group)))  # it was told, and remembers


async def test_who_says_that_the_group_is_new_begins_it_and_the_note_is_gone(
    tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with changing(tmp_path, 1, 2) as group:
        await grow(group)
        for name in list(group.nodes):
            await group.stop(name)
        empty(group, "n0")
        config = settings(group, "n0", new=True)
        async with dledger.open_node(config, dledger.LogOnly()) as node:
            assert "is removed: this start says that it is new" in caplog.text
            assert (await (await ready(node)).append(b"anew")).index == 1
        assert not notes(group)
        assert not os.listdir(home / "dledger")
        # The option is without effect on a folder that holds something.
        async with dledger.open_node(config, dledger.LogOnly()) as node:
            assert (await (await ready(node)).append(b"and on")).index == 3


class FullDisk(OsDisk):
    """Takes no notes."""

    def create(self, path: str) -> OsDiskFile:
        if ".dledger-has-grown" in path:
            raise OSError(28, "No space left on device", path)
        return super().create(path)


async def test_a_group_of_one_that_cannot_note_it_does_not_grow(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        group = Changing(tmp_path, 1, 1, nursery)
        platform = Platform(disk=FullDisk())
        joining = await group.start("n1")
        async with dledger.open_node(settings(group, "n0"), dledger.LogOnly(), platform) as node:
            await (await ready(node)).append(b"alone")
            for change in (group.learner("n1"), group.voter("n1")):
                with pytest.raises(GrowthNotNoted, match=r"No space left on device.*--join"):
                    await node.change([change])
            assert joining.status().role == "joining"
        # With --join it needs no note: it never begins a group.
        config = settings(group, "n0", joining=True)
        async with dledger.open_node(config, dledger.LogOnly(), platform) as node:
            await (await ready(node)).change([group.voter("n1")])
        await group.stop("n1")


async def test_two_emptied_members_of_three_do_not_begin_without_the_third(
    tmp_path: Path,
) -> None:
    async with changing(tmp_path, 3) as group:
        await group.append(b"three")
        await group.agreed("n0", "n1", "n2")
        for name in list(group.nodes):
            await group.stop(name)
        for name in ("n0", "n1"):
            empty(group, name)
        async with AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(
                    dledger.open_node(settings(group, name), dledger.LogOnly())
                )
                for name in ("n0", "n1")
            ]
            said = [await stays_down(node) for node in nodes]
            assert "n2 did not answer" in said[0]
            assert "Start n2." in said[0]
            third = await group.start("n2")
            await trio.sleep(LONG_ENOUGH_S)
            assert [node.status().proven for node in (*nodes, third)] == [False, False, True]
            assert nodes[0].status().not_begun is None  # it has an answer


async def test_the_first_voters_of_a_group_that_moved_away_do_not_begin_it_anew(
    tmp_path: Path,
) -> None:
    async with changing(tmp_path, 1, 2) as group:
        await grow(group)
        leader = group.nodes["n1"]
        await leader.change([dledger.Remove("n0")])
        for name in list(group.nodes):
            await group.stop(name)
        empty(group, "n0")
        async with dledger.open_node(settings(group, "n0"), dledger.LogOnly()) as node:
            await stays_down(node)


@pytest.mark.parametrize("told", [True, False])
async def test_a_new_group_of_three_begins_with_two_members_only_when_it_is_told(
    tmp_path: Path, told: bool
) -> None:
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        group = Changing(tmp_path, 3, 0, nursery)

        async def opened(name: str) -> dledger.Node:
            config = settings(group, name, new=told)
            return await stack.enter_async_context(dledger.open_node(config, dledger.LogOnly()))

        nodes = [await opened(name) for name in ("n0", "n1")]
        if not told:
            assert "n2 did not answer" in await stays_down(nodes[0])
            nodes.append(await opened("n2"))
        await until(lambda: any(node.status().ready for node in nodes))


def test_a_member_cannot_both_join_a_group_and_begin_it(tmp_path: Path) -> None:
    with pytest.raises(dledger.ConfigInvalid, match="new"):
        dledger.NodeConfig(
            group="g",
            node_id="n0",
            peers={"n0": "127.0.0.1:20911"},
            data_dir=tmp_path,
            joining=True,
            new=True,
        )
