"""All that one node does about snapshots, put together: written, sent, received, restored."""

from __future__ import annotations

from collections.abc import Callable

from dledger.core.replica import Replica
from dledger.network.ways import Ways
from dledger.snapshots.awaited_snapshot import AwaitedSnapshot
from dledger.snapshots.beside import Beside
from dledger.snapshots.restoring import Opened
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.snapshots.snapshot_source import NodeSnapshots
from dledger.snapshots.snapshot_transfer import SnapshotTransfer
from dledger.snapshots.snapshotter import SnapshotAnswer, Snapshotter
from dledger.state_machine import StateMachine
from dledger.status import InstallStatus
from dledger.store.incoming_snapshot import IncomingSnapshot
from dledger.store.snapshot_folder import Snapshot
from dledger.waits.pending_appends import PendingAppends


class Snapshots:
    """One node's.

    `look` is to be called at `next_look_at`.

    Args:
        group: its name.
        policy: when snapshots are written, and how many are kept.
        opened: the folder, and what was found in it.
        incoming: what takes a leader's snapshot into the folder.
        machine: what is saved and restored.
        source: what can be sent; the replica has it too.
        replica, ways, pending: the node's.
        beside: does what would hold up the loop.
        wake: has a turn taken soon.
        wake_look: has `look` called soon.
        restored: told when the machine was given a leader's snapshot.
    """

    def __init__(
        self,
        group: str,
        policy: SnapshotPolicy,
        opened: Opened,
        incoming: IncomingSnapshot | None,
        machine: StateMachine,
        source: NodeSnapshots,
        replica: Replica,
        ways: Ways,
        pending: PendingAppends,
        beside: Beside,
        wake: Callable[[], None],
        wake_look: Callable[[], None],
        restored: Callable[[], None],
    ) -> None:
        self._source = source
        self._replica = replica
        self._pending = pending
        self._has_restored = restored
        self.transfer = SnapshotTransfer(
            opened.folder, incoming, source, ways, wake, self._log_replaced, beside
        )
        self.awaited = AwaitedSnapshot(
            opened.folder, opened.store, replica, machine, self._installed, beside
        )
        self.awaited.snapshot = opened.awaited
        self._snapshotter = Snapshotter(
            group, policy, machine, opened, replica, wake, source, beside, wake_look
        )

    def go_by(self, policy: SnapshotPolicy) -> None:
        """Another policy from now on. Raises ConfigInvalid."""
        self._snapshotter.go_by(policy)

    def ask(self, done: Callable[[SnapshotAnswer], None]) -> None:
        """Write a snapshot now; see Snapshotter."""
        self._snapshotter.ask(done)

    @property
    def newest_snapshot(self) -> Snapshot | None:
        """The newest one that was written, or given to the state machine."""
        return self._source.last

    @property
    def newest(self) -> int:
        """The last entry in the newest one; -1 without."""
        return self._source.last.header.index if self._source.last is not None else -1

    @property
    def installing(self) -> InstallStatus | None:
        """The leader's snapshot that is being received, or that the state waits for."""
        installing = self.transfer.installing
        return InstallStatus(*installing) if installing is not None else None

    @property
    def next_look_at(self) -> float:
        """When `look` is to be called."""
        return min(self._snapshotter.next_look_at, self.transfer.next_look_at)

    def look(self, now: float) -> None:
        """Begin what is due, and say what a peer lacks."""
        self._snapshotter.look(now)
        if now >= self.transfer.next_look_at:
            self.transfer.look(self._replica, now)

    def close(self) -> None:
        """Give up what is under way, and answer every caller that waits."""
        self._snapshotter.close()

    def ended(self) -> None:
        """Nothing runs beside the loop any more: close what is being received."""
        self.transfer.close()

    def _log_replaced(self, snapshot: Snapshot) -> None:
        """The log is begun anew: the state machine waits for this snapshot."""
        self.awaited.snapshot = snapshot
        self._snapshotter.log_replaced()
        self._pending.never_applied(snapshot.header.index, self._replica.state.leader)

    def _installed(self, snapshot: Snapshot) -> None:
        self.transfer.installed()
        self._snapshotter.installed(snapshot)
        self._has_restored()
