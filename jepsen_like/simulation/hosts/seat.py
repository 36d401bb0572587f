"""A member's seat on one machine. The member is open while its host runs and it is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import trio

from dledger.config import NodeConfig
from dledger.errors import DLedgerError, MachineFailed
from dledger.node.host import Host
from dledger.node.node import Node
from dledger.sessions.with_sessions import WithSessions
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.store.store_config import StoreConfig
from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.around import Around
from jepsen_like.simulation.hosts.folding_machine import FoldingMachine
from jepsen_like.simulation.hosts.plan import GroupPlan
from jepsen_like.simulation.hosts.process import Process

# A call that waits for a node has to end within this time after the node ended.
END_WITH_NODE_S = 1.0
# The pause before a node is opened again after its application failed.
MEAN_REOPEN_S = 0.3

INDEX_SEGMENT_BYTES = 32 * 512
# Room for the changes of some thirty entries: clients ask for older ones, too.
WATCH_HISTORY_BYTES = 30_000


class Running(NamedTuple):
    node: Node
    machine: FoldingMachine
    process: Process


class Seat:
    """One member of one group on one machine.

    Attributes:
        wanted: whether it should be open whenever its host runs.
        closed_since: when it was last closed, while it is closed.
        returns: whether it belongs to the group until the end of the run.
        removed: whether its group has removed it. Until then it is opened again: a group that has
            not begun waits for it.
    """

    def __init__(
        self, around: Around, group: GroupPlan, member: str, peers: dict[str, str], *, joins: bool
    ) -> None:
        self.group = group
        self.member = member
        self._running: Running | None = None
        self._taken_in: Process | None = None
        self.wanted = True
        self.returns = True
        self.removed = False
        self.closed_since: float | None = 0.0
        self._around = around
        self._peers = peers
        self._joins = joins
        self._stop = trio.Event()
        self._changed = trio.Event()
        self._chance = Chance(around.plan.seed, f"seat {group.name} {member}")

    @property
    def running(self) -> Running | None:
        """The open member; None while it is closed."""
        running = self._running
        return running if running is not None and running.process.life.is_alive else None

    @property
    def is_taken(self) -> bool:
        """Whether the member is open, is being opened or is being closed."""
        return self._taken_in is not None and self._taken_in.life.is_alive

    def want(self, wanted: bool) -> None:
        if wanted is self.wanted:
            return
        self.wanted = wanted
        self._changed.set()
        if not wanted:
            self._stop.set()

    async def run(self, host: Host, process: Process) -> None:
        """Keep the member open while it is wanted, until the host ends."""
        while process.life.is_alive:
            self._changed = trio.Event()
            if not self.wanted:
                await self._changed.wait()
                continue
            self._stop = trio.Event()
            self._taken_in = process
            try:
                await self._serve(host, process)
            except DLedgerError as error:
                if not process.life.is_alive:
                    return
                self._judge(error)
            finally:
                self._closed()
                if self._taken_in is process:  # else it is open in the next process
                    self._taken_in = None
            await trio.sleep(self._chance.wait_s(MEAN_REOPEN_S))

    async def _serve(self, host: Host, process: Process) -> None:
        around, name = self._around, f"{self.group.name}/{self.member}"
        book = around.books[self.group.name]
        machine = FoldingMachine(self.member, book, lambda: process.life.is_alive)
        async with host.open_node(self._config(), WithSessions(machine)) as node:
            self._running = Running(node, machine, process)
            self.closed_since = None
            around.journal.count("members opened", name)
            machine.installs = 0  # later snapshots come from a leader
            await self._stop.wait()
            around.journal.count("members closed in order", name)

    def _judge(self, error: DLedgerError) -> None:
        name = f"{self.group.name}/{self.member}"
        if isinstance(error, MachineFailed) and self.running and self.running.machine.breaks:
            self._around.journal.count("nodes ended by their application", name)
            return
        self._around.broken(f"no {type(error).__name__}", f"{name}: {error}")

    def _closed(self) -> None:
        running, self._running = self._running, None
        self.closed_since = trio.current_time()
        if running is not None:
            self._around.journal.coverage.count("snapshots installed", running.machine.installs)
        if running is not None and running.process.life.is_alive:
            self._around.nursery.start_soon(self._check_calls, running.node)

    async def _check_calls(self, node: Node) -> None:
        await trio.sleep(END_WITH_NODE_S)
        for call in self._around.calls.of(node):
            self._around.broken(
                "calls end with their node", f"{self.group.name}/{self.member}: {call}"
            )

    def _config(self) -> NodeConfig:
        group = self.group
        return NodeConfig(
            group=group.name,
            node_id=self.member,
            peers=self._peers,
            joining=self._joins,
            data_dir=Path("/data") / group.name,
            watch_history_bytes=WATCH_HISTORY_BYTES,
            max_clock_drift=group.max_clock_drift,
            store=StoreConfig(
                segment_bytes=group.segment_bytes,
                index_segment_bytes=INDEX_SEGMENT_BYTES,
                max_body_bytes=1_024,
                checkpoint_bytes=group.segment_bytes,
            ),
            snapshots=SnapshotPolicy(
                every_entries=group.snapshot_every, kept=1, trailing_entries=20
            )
            if group.snapshot_every
            else SnapshotPolicy(),
        )
