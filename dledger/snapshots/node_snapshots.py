"""The snapshots of one node: writes, sends, receives and restores them."""

from __future__ import annotations

from collections.abc import Callable

from dledger.errors import MachineTooOld, SnapshotUnavailable
from dledger.node_end import NodeEnd
from dledger.snapshots.awaited_snapshot import AwaitedSnapshot
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.snapshots.snapshot_transfer import SnapshotTransfer
from dledger.snapshots.snapshotter import SnapshotAnswer, Snapshotter, Surroundings
from dledger.status import InstallStatus
from dledger.store.incoming_snapshot import IncomingSnapshot
from dledger.store.snapshot_folder import Snapshot
from dledger.waits.pending_appends import PendingAppends


class Snapshots:
    """The snapshots of one node. The caller calls `look` at `next_look_at`.

    Args:
        around: the surroundings of the snapshots.
        policy: when snapshots are written, and how many are kept.
        incoming: writes a leader's snapshot into the folder; None if the machine cannot restore it.
        pending: waiting appends.
        restored: called after the machine was restored from a leader's snapshot.
    """

    def __init__(
        self,
        around: Surroundings,
        policy: SnapshotPolicy,
        incoming: IncomingSnapshot | None,
        pending: PendingAppends,
        restored: Callable[[], None],
    ) -> None:
        opened, source, beside = around.opened, around.source, around.beside
        self.machine_stopped: MachineTooOld | None = None  # the state may be half changed then
        self._source = source
        self._replica = around.replica
        self._pending = pending
        self._has_restored = restored
        self.transfer = SnapshotTransfer(
            opened.folder, incoming, source, around.ways, around.wake, self._log_replaced, beside
        )
        self.awaited = AwaitedSnapshot(
            opened.folder, opened.store, around.replica, around.machine, self._installed, beside
        )
        self.awaited.snapshot = opened.awaited
        self._snapshotter = Snapshotter(around, policy)

    def go_by(self, policy: SnapshotPolicy) -> None:
        self._snapshotter.go_by(policy)

    def ask(self, done: Callable[[SnapshotAnswer], None]) -> None:
        if self.machine_stopped is not None:
            raise SnapshotUnavailable(str(self.machine_stopped))
        self._snapshotter.ask(done)

    @property
    def newest_snapshot(self) -> Snapshot | None:
        """The newest snapshot that was written, or from which the state machine was restored."""
        return self._source.last

    @property
    def newest(self) -> int:
        """The last entry in the newest snapshot; -1 if there is none."""
        return self._source.last.header.index if self._source.last is not None else -1

    @property
    def installing(self) -> InstallStatus | None:
        """The leader's snapshot that is being received, or that waits to be restored."""
        return self.transfer.installing

    @property
    def next_look_at(self) -> float:
        if self.machine_stopped is not None:
            return self.transfer.next_look_at
        return min(self._snapshotter.next_look_at, self.transfer.next_look_at)

    def look(self, now: float) -> None:
        """Begin the work that is due, and log which peers lack a snapshot."""
        if self.machine_stopped is None:
            self._snapshotter.look(now)
        if now >= self.transfer.next_look_at:
            self.transfer.look(self._replica, now)

    def close(self, end: NodeEnd) -> None:
        """Give up the snapshot being written, and answer every caller that waits."""
        self._snapshotter.close(end)

    def ended(self) -> None:
        """Close the file being received. No work may run beside the loop any more."""
        self.transfer.close()

    def _log_replaced(self, snapshot: Snapshot) -> None:
        """Note that the log was restarted, and that the state machine waits for this snapshot."""
        self.awaited.snapshot = snapshot
        self._snapshotter.log_replaced()
        self._pending.never_applied(snapshot.header.index, self._replica.state.leader)

    def _installed(self, snapshot: Snapshot) -> None:
        self.transfer.installed()
        self._snapshotter.installed(snapshot)
        self._has_restored()
