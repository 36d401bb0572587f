"""Restores a running state machine from the snapshot that replaces the dropped part of its log.

A log that was restarted for a snapshot begins before the snapshot's last entry. Its entries are
appended as usual. Once that last entry is committed and durable here, the state machine is restored
from the snapshot and goes on after it. So the state is never ahead of the log, and no entry is
applied twice or skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.core.replica import Replica
from dledger.errors import InvariantBroken
from dledger.machine_check import restore
from dledger.snapshots.beside import Beside, Continuation
from dledger.state_machine import SnapshottingMachine, StateMachine
from dledger.store.log_store import LogStore
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder

logger = logging.getLogger(__name__)


class AwaitedSnapshot:
    """The snapshot that the state machine waits for, if it waits for one.

    Args:
        folder: reads the file.
        store, replica: tell how far the log is, and whether the snapshot belongs to it.
        machine: the state machine to restore.
        restored: called in the node's thread after the restore.
        beside: reads the file.
    """

    def __init__(
        self,
        folder: SnapshotFolder,
        store: LogStore,
        replica: Replica,
        machine: StateMachine,
        restored: Callable[[Snapshot], None],
        beside: Beside,
    ) -> None:
        self.snapshot: Snapshot | None = None
        self.is_restoring = False
        self._folder = folder
        self._store = store
        self._replica = replica
        self._machine = machine
        self._restored = restored
        self._beside = beside

    def restore_if_due(self) -> None:
        """Begin to restore the machine if the log has reached the snapshot's last entry.

        Raises InvariantBroken, and in `beside` as `restore`: the node cannot go on.
        """
        snapshot, machine = self.snapshot, self._machine
        if snapshot is None or self.is_restoring:
            return
        header = snapshot.header
        if self._replica.appliable < header.index:
            return
        here = self._store.term_at(header.index), self._store.chain_at(header.index)
        if here != (header.term, header.chain_crc):
            raise InvariantBroken(f"{snapshot.path} is not of entry {header.index} of this log")
        assert isinstance(machine, SnapshottingMachine)
        self.is_restoring = True

        def work() -> Continuation:
            # Its sums were checked when it arrived, or at the start; and again now.
            restore(machine, lambda: self._folder.reader(snapshot).chunks(), snapshot.path)
            return lambda: self._has_restored(snapshot)

        self._beside(work)

    def _has_restored(self, snapshot: Snapshot) -> None:
        self.is_restoring = False
        if self.snapshot is snapshot:  # else the log was restarted again meanwhile
            self.snapshot = None
        index = snapshot.header.index
        self._replica.applied_to(index)
        logger.info("the state is that of the leader's snapshot of entry %d", index)
        self._restored(snapshot)
