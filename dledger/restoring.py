"""Opens a node's folder, and gives the state machine the newest good snapshot in it."""

from __future__ import annotations

import logging
from typing import NamedTuple

from dledger.config import NodeConfig
from dledger.core.configuration_codec import decode_configuration
from dledger.core.hard_state import HardState
from dledger.errors import ConfigInvalid, ConfigurationMalformed, RestoreFailed, SnapshotLost
from dledger.state_machine import SnapshottingMachine, StateMachine, snapshot_format
from dledger.store.disk import Disk
from dledger.store.folder import node_folder
from dledger.store.log_store import LogStore
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from dledger.store.snapshot_format import SnapshotHeader

logger = logging.getLogger(__name__)


class Opened(NamedTuple):
    """A node's folder, open. `restored` is what the state machine begins with, if anything."""

    store: SegmentStore
    folder: SnapshotFolder
    restored: Snapshot | None

    @property
    def hard_state(self) -> HardState:
        """The durable one; what a snapshot stands for is committed, whatever the record says."""
        hard_state = self.store.hard_state
        if self.restored is None:
            return hard_state
        return hard_state._replace(committed=max(hard_state.committed, self.restored.header.index))

    @property
    def configuration(self) -> bytes:
        """Who belonged to the group where the log is begun with; empty: who did at first."""
        return b"" if self.restored is None else self.restored.header.configuration


def open_and_restore(disk: Disk, config: NodeConfig, machine: StateMachine) -> Opened:
    """Open the store and bring the state machine to its newest good snapshot. Blocks; any thread.

    Raises as `open_store`, and:
        ConfigInvalid: snapshots are asked for of a state machine that has none.
        SnapshotLost: the log's beginning is gone, and no snapshot stands for it.
        RestoreFailed: the state machine raised.
    """
    can_snapshot = isinstance(machine, SnapshottingMachine)
    if config.snapshots.is_on and not can_snapshot:
        raise ConfigInvalid(
            "snapshots", "the state machine has no methods snapshot() and restore()"
        )
    store = open_store(disk, str(config.data_dir), config.store, config.group, config.node_id)
    try:
        folder = SnapshotFolder(disk, node_folder(str(config.data_dir), config.node_id))
        if isinstance(machine, SnapshottingMachine):
            folder.open()
            restored = restore_newest(folder, store, machine, config.group)
        else:
            restored = None
            if store.first_index > 0 and folder.indexes():
                problem = "the state machine has no method restore()"
                raise SnapshotLost(folder.path, store.first_index, [problem])
    except BaseException:
        store.close()
        raise
    return Opened(store, folder, restored)


def configuration_problem(content: bytes) -> str | None:
    """What is wrong with the configuration in a snapshot's header; None for nothing, or none."""
    try:
        if content:
            decode_configuration(content)
    except ConfigurationMalformed as error:
        return error.problem
    return None


def restore_newest(
    folder: SnapshotFolder, store: LogStore, machine: SnapshottingMachine, group: str
) -> Snapshot | None:
    """Give the machine the newest snapshot that is whole and of this log; which one it was.

    Every sum is checked before the machine sees a byte. Raises SnapshotLost, RestoreFailed.
    """
    wanted = snapshot_format(machine)

    def judge(header: SnapshotHeader) -> str | None:
        if header.group != group:
            return f"it is of group {header.group}"
        if header.machine != wanted:
            return f"it has the format {header.machine!r}, the state machine reads {wanted!r}"
        if header.index > store.last_index:
            return f"it is of entry {header.index}, the log ends with entry {store.last_index}"
        if header.index < store.first_index - 1:
            return f"it is of entry {header.index}, the log begins with entry {store.first_index}"
        if (problem := configuration_problem(header.configuration)) is not None:
            return problem
        here = (store.term_at(header.index), store.chain_at(header.index))
        if here != (header.term, header.chain_crc):
            return f"entry {header.index} of this log is another one"
        return None

    newest, problems = folder.find_newest(judge)
    for problem in problems:
        logger.warning("a snapshot cannot be used: %s", problem)
    if newest is None:
        if store.first_index > 0:
            raise SnapshotLost(folder.path, store.first_index, problems)
        return None
    try:
        machine.restore(newest.chunks())
    except Exception as error:
        raise RestoreFailed(newest.path) from error
    return Snapshot(newest.header, newest.path, newest.size)
