"""Sessions over a machine with snapshots, in a node that compacts its log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import dledger
from dledger.entry import Entry
from dledger.free_ports import free_ports
from dledger.sessions.with_sessions import WithSessions
from tests.dledger.node.test_rotten_reads import ready


class Counter:
    """Adds what it is told to."""

    snapshot_format = "counter/1"

    def __init__(self) -> None:
        self.total = 0

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """The total after each entry."""
        totals: list[object] = []
        for entry in entries:
            self.total += int(entry.body)
            totals.append(self.total)
        return totals

    def snapshot(self) -> Iterator[bytes]:
        """The total."""
        return iter([b"%d" % self.total])

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Take it back."""
        self.total = int(b"".join(chunks))


async def test_a_session_goes_on_behind_a_snapshot_and_a_restart(tmp_path: Path) -> None:
    peers = {"n0": f"127.0.0.1:{free_ports(1)[0]}"}
    config = dledger.NodeConfig(group="g", node_id="n0", peers=peers, data_dir=tmp_path, new=True)
    async with dledger.open_node(config, WithSessions(Counter())) as node:
        await ready(node)
        async with node.session() as session:
            await session.append(b"5")
            await session.append(b"6")
            await node.snapshot()
            await session.append(b"7")
    machine = WithSessions(Counter())
    async with dledger.open_node(config, machine) as node:
        await ready(node)
        async with node.session() as session:
            again = await session.append(b"100")
    assert again.result == 118
    assert isinstance(machine.machine, Counter)
    assert machine.machine.total == 118


def test_the_format_of_the_snapshot_names_both() -> None:
    assert getattr(WithSessions(Counter()), "snapshot_format") == "sessions/1+counter/1"  # noqa: B009
    assert not isinstance(WithSessions(dledger.LogOnly()), dledger.SnapshottingMachine)
