"""A member whose state machine does not read an entry, and the group around it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

import dledger
from tests.dledger.running_members import Members, lone, ready, until

NEW = b"of version 2"


class Reads:
    """Keeps the bodies that it was given; version 1 does not read one of them."""

    def __init__(self, version: int) -> None:
        self.machine_version = version
        self.bodies: list[bytes] = []

    def apply(self, entries: Sequence[dledger.Entry]) -> Sequence[object]:
        """The number of bodies so far, for each."""
        for entry in entries:
            if entry.body == NEW and self.machine_version < 2:
                raise dledger.MachineTooOld(entry.index, "it is of version 2")
            self.bodies.append(entry.body)
        return [len(self.bodies)] * len(entries)


def leader(members: Members) -> dledger.Node | None:
    return next((node for node in members.nodes.values() if node.is_ready_leader), None)


async def appended(members: Members, body: bytes) -> None:
    """Append by whichever member leads."""
    with trio.fail_after(20):
        while True:
            if (node := leader(members)) is not None:
                try:
                    await node.append(body)
                except dledger.DLedgerError:
                    pass
                else:
                    return
            await trio.sleep(0.01)


async def test_a_leader_that_stops_hands_over_and_the_others_go_on(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    members = Members(tmp_path, nursery, new=True)
    machines = {"n0": Reads(1), "n1": Reads(2), "n2": Reads(2)}
    for name, machine in machines.items():
        await members.start(name, machine)
    old = members.nodes["n0"]
    first = await ready(*members.nodes.values())
    if first is not old:
        await first.transfer_leadership("n0")
        await ready(old)
    with caplog.at_level(logging.ERROR), pytest.raises(dledger.OutcomeUnknown):
        await old.append(NEW)
    await until(lambda: leader(members) not in (None, old))
    assert "does not read entry" in caplog.text
    await appended(members, b"behind")
    assert not old.is_ready_leader
    last = members.nodes["n1"].status().committed
    await until(lambda: old.status().durable >= last)
    stopped = old.status().machine_stopped
    assert stopped is not None
    assert "it is of version 2" in stopped
    assert machines["n0"].bodies == []
    with pytest.raises(dledger.MachineStopped):
        old.submit([b"x"], lambda outcome: None)
    with pytest.raises(dledger.ReadUnavailable, match="of version 2"):
        await old.read()
    with pytest.raises(dledger.ReadUnavailable, match="of version 2"):
        old.read_stale(max_lag_s=60)

    # It is elected, as it might be by chance, and hands over again.
    now = leader(members)
    assert now is not None
    await now.transfer_leadership("n0")
    await until(lambda: leader(members) not in (None, old))

    await members.stop("n0")
    again = Reads(1)
    await members.start("n0", again)
    await until(lambda: members.nodes["n0"].status().machine_stopped == stopped)
    await members.stop("n0")
    upgraded = Reads(2)
    await members.start("n0", upgraded)
    await until(lambda: upgraded.bodies == [NEW, b"behind"])
    nursery.cancel_scope.cancel()


async def test_a_group_that_cannot_read_an_entry_goes_on_when_all_pass_it_over(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    members = Members(tmp_path, nursery, new=True)
    for name in ("n0", "n1", "n2"):
        await members.start(name, Reads(1))
    await appended(members, b"before")
    first = leader(members)
    assert first is not None
    with trio.fail_after(20), pytest.raises(dledger.OutcomeUnknown):
        await first.append(NEW)
    await until(lambda: all(node.status().machine_stopped for node in members.nodes.values()))
    assert leader(members) is None
    await until(lambda: any(node.role.role == "leader" for node in members.nodes.values()))
    index = next(entry.index for entry in first.entries(0, 1 << 20) if entry.body == NEW)
    machines = {name: Reads(1) for name in members.nodes}
    for name in machines:
        await members.stop(name)
    for name, machine in machines.items():
        await members.start(name, machine, pass_over=frozenset((index,)))
    await appended(members, b"behind")
    await until(lambda: all(one.bodies == [b"before", b"behind"] for one in machines.values()))
    nursery.cancel_scope.cancel()


class Saved(Reads):
    """The same with snapshots."""

    def snapshot(self) -> Sequence[bytes]:
        """The bodies."""
        return list(self.bodies)

    def restore(self, chunks: object) -> None:
        """They are never restored here."""


async def test_a_machine_that_has_stopped_writes_no_snapshot(tmp_path: Path) -> None:
    async with dledger.open_node(lone(tmp_path), Saved(1)) as node:
        await ready(node)
        await node.append(b"before")
        node.submit([b"together", NEW], lambda outcome: None)
        await until(lambda: node.status().machine_stopped is not None)
        with pytest.raises(dledger.SnapshotUnavailable, match="of version 2"):
            await node.snapshot()
        assert node.status().role == "leader"
