"""Gives a running state machine the snapshot that stands for what the log no longer holds.

A log that was begun anew for a snapshot's sake begins before the snapshot's last entry. Its entries
are appended as usual; once that one is here, committed and durable, the state machine is given the
snapshot, and goes on behind it. So what is applied is never ahead of the log, and no entry is
applied twice or left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.core.replica import Replica
from dledger.errors import DLedgerError, InvariantBroken, RestoreFailed
from dledger.state_machine import SnapshottingMachine, StateMachine
from dledger.store.log_store import LogStore
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from dledger.waits.blocking_work import IN_A_THREAD, RunBlocking

logger = logging.getLogger(__name__)


class AwaitedSnapshot:
    """The snapshot that the state machine waits for, if it waits for one.

    Args:
        folder: reads the file.
        store, replica: know how far the log is, and whether it is the snapshot's.
        machine: what is restored.
        restored: called in the node's thread when it was.
        run_blocking: restores it.
    """

    def __init__(
        self,
        folder: SnapshotFolder,
        store: LogStore,
        replica: Replica,
        machine: StateMachine,
        restored: Callable[[Snapshot], None],
        run_blocking: RunBlocking = IN_A_THREAD,
    ) -> None:
        self._run_blocking = run_blocking
        self.snapshot: Snapshot | None = None
        self.is_restoring = False
        self._folder = folder
        self._store = store
        self._replica = replica
        self._machine = machine
        self._restored = restored

    async def restore_if_due(self) -> bool:
        """Restore the machine if the log has reached the snapshot; whether it was restored.

        Raises RestoreFailed or InvariantBroken: the node cannot go on.
        """
        snapshot, machine = self.snapshot, self._machine
        if snapshot is None or self._replica.appliable < snapshot.header.index:
            return False
        header = snapshot.header
        here = self._store.term_at(header.index), self._store.chain_at(header.index)
        if here != (header.term, header.chain_crc):
            raise InvariantBroken(f"{snapshot.path} is not of entry {header.index} of this log")
        assert isinstance(machine, SnapshottingMachine)
        self.is_restoring = True
        try:
            # Its sums were checked when it came, or when the node started; and again now.
            reader = self._folder.reader(snapshot)
            await self._run_blocking(machine.restore, reader.chunks())
        except (Exception, DLedgerError) as error:
            raise RestoreFailed(snapshot.path) from error
        finally:
            self.is_restoring = False
        if self.snapshot is snapshot:  # else the log was begun anew once more meanwhile
            self.snapshot = None
        self._replica.applied_to(header.index)
        logger.info("the state is that of the leader's snapshot of entry %d", header.index)
        self._restored(snapshot)
        return True
