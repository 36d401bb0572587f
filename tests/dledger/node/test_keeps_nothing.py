"""A machine without a state begins behind what was committed; every other one is given the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

import dledger
from dledger.core.hard_state import HardState
from dledger.entry import Magic
from dledger.free_ports import free_ports
from dledger.state_machine import keeps_nothing
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store


class Counted(dledger.LogOnly):
    """Counts what it is given, and says that it keeps none of it."""

    keeps_nothing = True

    def __init__(self) -> None:
        self.given: list[int] = []

    def apply(self, entries: Sequence[dledger.Entry]) -> Sequence[object]:
        self.given += [entry.index for entry in entries]
        return super().apply(entries)


class Keeping(dledger.LogOnly):
    """Inherits from one that keeps nothing, and keeps something."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def apply(self, entries: Sequence[dledger.Entry]) -> Sequence[object]:
        self.given += [entry.index for entry in entries]
        return super().apply(entries)


class Renamed(dledger.LogOnly):
    """Changes nothing about how entries are applied."""


def test_only_a_machine_that_says_so_of_its_own_apply_keeps_nothing() -> None:
    assert keeps_nothing(dledger.LogOnly())
    assert keeps_nothing(Renamed())
    assert keeps_nothing(Counted())
    assert not keeps_nothing(Keeping())
    assert not keeps_nothing(dledger.WithSessions(dledger.LogOnly()))


def config(folder: Path, peers: dict[str, str]) -> dledger.NodeConfig:
    return dledger.NodeConfig(
        group="g",
        node_id="n0",
        peers=peers,
        data_dir=folder,
        store=dledger.StoreConfig(
            segment_bytes=1 << 20,
            index_segment_bytes=1 << 16,
            max_body_bytes=64 * 1024,
            spare_segments=0,
        ),
        new=True,
    )


async def ready(node: dledger.Node) -> None:
    with trio.fail_after(10):
        async for change in node.role_changes():
            if change.ready:
                return


@pytest.mark.parametrize("kind", [Counted, Keeping])
async def test_a_restart_gives_a_machine_what_it_has_to_know(
    tmp_path: Path, kind: type[Counted] | type[Keeping]
) -> None:
    peers = {"n0": f"127.0.0.1:{free_ports(1)[0]}"}
    machine = kind()
    async with dledger.open_node(config(tmp_path, peers), machine) as node:
        await ready(node)
        await node.append_many([b"x"] * 100)
        last = node.status().last_index
    assert len(machine.given) == 100
    machine = kind()
    async with dledger.open_node(config(tmp_path, peers), machine) as node:
        assert node.status().applied == (last if kind is Counted else -1)
        await ready(node)
        appended = await node.append(b"after the restart")
        assert await node.read() >= appended.index
        assert node.status().applied == node.status().last_index
    after = [appended.index]
    assert machine.given == (after if kind is Counted else [*range(1, 101), *after])


async def test_a_machine_that_keeps_nothing_is_given_what_was_not_committed_yet(
    tmp_path: Path,
) -> None:

    peers = {"n0": f"127.0.0.1:{free_ports(1)[0]}"}
    settings = config(tmp_path, peers)
    store = open_store(OsDisk(), str(tmp_path), settings.store, "g", "n0")
    store.append(1, Magic.NORMAL, [b"x"] * 10)
    store.begin_sync(HardState(1, "n0")).run()
    store.note_committed(5)
    store.close()
    machine = Counted()
    async with dledger.open_node(settings, machine) as node:
        assert node.status().applied == 5
        await ready(node)
        await node.read()
    assert machine.given == [6, 7, 8, 9]
