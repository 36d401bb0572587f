"""What members tell one another of their state machines."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

import dledger
from tests.dledger.running_members import Members, lone, until


class Versioned:
    """A machine of the given name and version."""

    def __init__(self, name: str, version: int) -> None:
        self.machine_name = name
        self.machine_version = version

    def apply(self, entries: Sequence[dledger.Entry]) -> Sequence[object]:
        """Return nothing for each entry."""
        return [None] * len(entries)


async def until_version(members: Members, name: str, version: int | None) -> None:
    await until(lambda: members.nodes[name].machine_version == version)


async def test_a_member_knows_the_version_that_all_members_read(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    members = Members(tmp_path, nursery, new=True)
    await members.start("n0", Versioned("counter", 3))
    await members.start("n1", Versioned("counter", 2))
    assert members.nodes["n0"].machine_version is None
    await members.start("n2", dledger.WithSessions(Versioned("counter", 5)))
    for name in members.nodes:
        await until_version(members, name, 2)
    assert members.nodes["n0"].status().machine_version == 2
    assert members.nodes["n0"].status().peers["n2"].machine_version == 5
    await members.stop("n1")
    await until_version(members, "n0", None)
    await members.start("n1", Versioned("counter", 3))
    await until_version(members, "n0", 3)
    nursery.cancel_scope.cancel()


async def test_a_removed_member_that_returns_says_so(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    members = Members(tmp_path, nursery, new=True)
    for name in ("n0", "n1", "n2"):
        await members.start(name, Versioned("counter", 1))
    with trio.fail_after(20):
        while not (members.nodes["n0"].is_ready_leader or members.nodes["n1"].is_ready_leader):
            if members.nodes["n2"].is_ready_leader:
                await members.nodes["n2"].transfer_leadership("n0")
            await trio.sleep(0.05)
    leader = "n0" if members.nodes["n0"].is_ready_leader else "n1"
    await members.nodes[leader].change([dledger.Remove("n2")])
    with trio.fail_after(20):
        async for role in members.nodes["n2"].role_changes():
            if role.role == "removed":
                break
    await members.stop("n2")
    caplog.clear()
    await members.start("n2", Versioned("counter", 1))
    assert "no longer belongs to group g" in caplog.text
    nursery.cancel_scope.cancel()


async def test_a_group_of_one_knows_its_version_at_once(tmp_path: Path) -> None:
    async with dledger.open_node(lone(tmp_path), Versioned("counter", 3)) as node:
        assert node.machine_version == 3


async def test_a_member_without_a_version_leaves_that_of_the_group_unknown(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    members = Members(tmp_path, nursery, new=True)
    await members.start("n0", Versioned("counter", 3))
    for name in ("n1", "n2"):
        await members.start(name, Versioned("", 0))
    with trio.fail_after(20):
        async for role in members.nodes["n0"].role_changes():
            if role.leader is not None:
                break
    assert members.nodes["n0"].machine_version is None
    nursery.cancel_scope.cancel()


async def test_members_with_other_machines_exchange_no_messages(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    members = Members(tmp_path, nursery, new=True)
    for name in ("n0", "n1"):
        await members.start(name, Versioned("counter", 1))
    with caplog.at_level(logging.WARNING):
        await members.start("n2", dledger.LogOnly())
        with trio.fail_after(20):
            while "has 'log'" not in caplog.text:  # noqa: ASYNC110
                await trio.sleep(0.01)
        with trio.fail_after(20):
            async for role in members.nodes["n0"].role_changes():
                if role.leader is not None:
                    break
    assert role.leader in ("n0", "n1")
    said = "for the state machine 'counter' at n0, and n2 has 'log'"
    await until(lambda: said in (members.nodes["n2"].status().peers["n0"].problem or ""))
    assert members.nodes["n2"].role.leader is None
    nursery.cancel_scope.cancel()
