"""A running node takes over some settings, and says what happens to it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

import dledger
from dledger.config import NodeConfig
from dledger.errors import ConfigInvalid
from dledger.free_ports import free_ports
from dledger.node.node import Node
from dledger.node.node_events import SLOW_SYNCS_TOLD_S, STALLED_S, NodeEvents
from dledger.node.tally import Tally
from dledger.state_machine import LogOnly


class Saved:
    snapshot_format = "saved/1"

    def apply(self, entries: Sequence[dledger.Entry]) -> list[object]:
        return [None] * len(entries)

    def snapshot(self) -> Iterator[bytes]:
        return iter([b"state"])

    def restore(self, chunks: Iterator[bytes]) -> None:
        list(chunks)


def config(folder: Path) -> NodeConfig:
    return NodeConfig(
        group="g",
        node_id="n0",
        peers={"n0": f"127.0.0.1:{free_ports(1)[0]}"},
        data_dir=folder,
        election_timeout_ms=100,
        heartbeat_interval_ms=20,
        new=True,
    )


async def ready(node: Node) -> None:
    async for change in node.role_changes():
        if change.ready:
            return


async def test_a_snapshot_policy_is_taken_over_by_a_running_node(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with dledger.open_node(settings, Saved()) as node:
        await ready(node)
        await node.append_many([b"x"] * 10)
        assert node.status().newest_snapshot == -1
        policy = dledger.SnapshotPolicy(every_entries=5)
        node.reconfigure(settings.with_changes({"snapshots": policy}))
        for _ in range(500):
            if node.status().newest_snapshot >= 0:
                break
            await trio.sleep(0.02)
        assert node.status().newest_snapshot >= 5
        assert node.config.snapshots == policy


async def test_what_a_running_node_cannot_take_over_changes_nothing(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with dledger.open_node(settings, LogOnly()) as node:
        with pytest.raises(ConfigInvalid, match="max_batch_bytes: cannot change while"):
            node.reconfigure(
                settings.with_changes({"max_batch_bytes": 7, "preferred_leader": "n0"})
            )
        with pytest.raises(ConfigInvalid, match="no methods snapshot"):
            node.reconfigure(
                settings.with_changes({"snapshots": dledger.SnapshotPolicy(every_entries=5)})
            )
        assert node.config == settings
        node.reconfigure(settings.with_changes({"preferred_leader": "n0", "scrub_period_hours": 0}))
        assert node.config.preferred_leader == "n0"


class Told:
    """A node that is whatever a test says."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.configuration = SimpleNamespace(
            index=-1, configuration=SimpleNamespace(addresses={"n0": "a:1"})
        )
        self.now = SimpleNamespace(newest_snapshot=-1, durable=5, last_index=5)

    def status(self) -> SimpleNamespace:
        return self.now


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [str(record.__dict__["event"]) for record in caplog.records]
    caplog.clear()
    return found


async def test_each_thing_that_happens_is_one_line_and_no_flood(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    caplog.set_level(logging.INFO)
    told = Told()
    watch = NodeEvents(cast("Node", told), logging.getLogger("progress"))
    watch.look()
    assert events(caplog) == []
    told.now.newest_snapshot = 4
    told.configuration.index = 3
    watch.look()
    watch.look()
    assert events(caplog) == ["members", "snapshot"]
    for _ in range(50):
        told.tally.synced(0.3)
        watch.look()
    assert events(caplog) == ["slow_sync"]
    await trio.sleep(SLOW_SYNCS_TOLD_S)
    told.tally.synced(0.0001)
    watch.look()
    assert caplog.records[0].__dict__["count"] == 49
    assert events(caplog) == ["slow_sync"]


async def test_a_disk_that_finishes_no_sync_is_told_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    caplog.set_level(logging.INFO)
    told = Told()
    watch = NodeEvents(cast("Node", told), logging.getLogger("progress"))
    told.now.last_index = 9
    for _ in range(10):
        watch.look()
        await trio.sleep(STALLED_S)
    assert events(caplog) == ["disk_stalled"]
    told.now.durable = 9
    watch.look()
    watch.look()
    assert events(caplog) == ["disk_goes_on"]
