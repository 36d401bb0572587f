"""All that one node does about snapshots, put together: written, sent, received, restored."""

from __future__ import annotations

from collections.abc import Callable

import trio

from dledger.config import NodeConfig
from dledger.core.replica import Replica
from dledger.network.links import Links
from dledger.snapshots.awaited_snapshot import AwaitedSnapshot
from dledger.snapshots.restoring import Opened, incoming_for
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.snapshots.snapshot_source import NodeSnapshots
from dledger.snapshots.snapshot_transfer import SnapshotTransfer
from dledger.snapshots.snapshotter import Snapshotter
from dledger.state_machine import StateMachine
from dledger.status import InstallStatus
from dledger.store.snapshot_folder import Snapshot
from dledger.waits.blocking_work import IN_A_THREAD, RunBlocking
from dledger.waits.pending_appends import PendingAppends


class Snapshots:
    """One node's.

    Args:
        config: the group's name, and the policy.
        opened: the folder, and what was found in it.
        machine: what is saved and restored.
        source: what can be sent; the replica has it too.
        replica, links, pending: the node's.
        wake: has the driver take a turn.
        run_blocking: reads and writes files.
    """

    def __init__(
        self,
        config: NodeConfig,
        opened: Opened,
        machine: StateMachine,
        source: NodeSnapshots,
        replica: Replica,
        links: Links,
        pending: PendingAppends,
        wake: Callable[[], None],
        run_blocking: RunBlocking = IN_A_THREAD,
    ) -> None:
        self._source = source
        self._replica = replica
        self._pending = pending
        self.transfer = SnapshotTransfer(
            opened.folder,
            incoming_for(opened, config.group, machine),
            source,
            links,
            wake,
            self._log_replaced,
            run_blocking,
        )
        self.awaited = AwaitedSnapshot(
            opened.folder, opened.store, replica, machine, self._installed, run_blocking
        )
        self.awaited.snapshot = opened.awaited
        self._snapshotter = Snapshotter(
            config.group,
            config.snapshots,
            machine,
            opened,
            replica,
            wake,
            source,
            run_blocking,
        )

    def go_by(self, policy: SnapshotPolicy) -> None:
        """Another policy from now on. Raises ConfigInvalid."""
        self._snapshotter.go_by(policy)

    async def take(self) -> Snapshot:
        """Write a snapshot now; see Snapshotter."""
        return await self._snapshotter.take()

    @property
    def newest(self) -> int:
        """The last entry in the newest one; -1 without."""
        return self._source.last.header.index if self._source.last is not None else -1

    @property
    def installing(self) -> InstallStatus | None:
        """The leader's snapshot that is being received, or that the state waits for."""
        installing = self.transfer.installing
        return InstallStatus(*installing) if installing is not None else None

    async def run(self) -> None:
        """Write, send and receive, for ever."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._snapshotter.run)
                nursery.start_soon(self.transfer.run_sending)
                nursery.start_soon(self.transfer.run_receiving)
                nursery.start_soon(self.transfer.run_watching, self._replica)
        finally:
            self.transfer.close()

    def close(self) -> None:
        """Give up what is under way, and answer everybody who waits."""
        self._snapshotter.close()

    def _log_replaced(self, snapshot: Snapshot) -> None:
        """The log is begun anew: the state machine waits for this snapshot."""
        self.awaited.snapshot = snapshot
        self._snapshotter.log_replaced()
        self._pending.never_applied(snapshot.header.index, self._replica.state.leader)

    def _installed(self, snapshot: Snapshot) -> None:
        self.transfer.installed()
        self._snapshotter.installed(snapshot)
