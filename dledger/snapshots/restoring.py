"""Opens a node's folder, and restores the state machine from the newest usable snapshot in it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from dledger.config import NodeConfig
from dledger.core.admission.standing import Standing, Told
from dledger.core.hard_state import HardState
from dledger.core.membership.configuration_codec import decode_configuration
from dledger.entry import BEFORE_FIRST_INDEX
from dledger.errors import (
    ConfigInvalid,
    ConfigurationMalformed,
    DiskFailed,
    SnapshotLost,
)
from dledger.machine_check import restore
from dledger.machine_kind import UNKNOWN_MACHINE, MachineKind, machine_kind
from dledger.state_machine import (
    SnapshottingMachine,
    StateMachine,
    keeps_nothing,
    snapshot_format,
)
from dledger.store.birth_file import FILE_NAME as BIRTH
from dledger.store.birth_file import BirthFile
from dledger.store.birth_record import NOTHING_KNOWN, BirthRecord
from dledger.store.disk import Disk, OsDisk, failing
from dledger.store.disk_room import DiskRoom, unwatched_room
from dledger.store.folder import node_folder
from dledger.store.folder_birth import settle_birth
from dledger.store.growth_note import GrowthNote, NotedMember
from dledger.store.incoming_snapshot import SYNC_BYTES, IncomingSnapshot
from dledger.store.log_store import LogStore
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from dledger.store.snapshot_format import SnapshotHeader

logger = logging.getLogger(__name__)

_ALWAYS = unwatched_room(OsDisk())


class Opened(NamedTuple):
    """A node's open folder.

    Attributes:
        restored: the snapshot that the state machine was restored from.
        awaited: the leader's snapshot that the node was installing when it stopped, if the log does
            not reach its last entry yet. The state machine is restored from it once the log does.
        keeps_nothing: whether the state machine has no state that a replay of the log must rebuild.
        birth: how the group began, as the folder says.
        machine: the kind of the state machine.
        room: whether its disk has room for entries.
        told: what the operator or a note outside of the folder says about the group.
        growth_note: that note.
    """

    store: SegmentStore
    folder: SnapshotFolder
    restored: Snapshot | None
    awaited: Snapshot | None = None
    keeps_nothing: bool = False
    birth: BirthRecord = NOTHING_KNOWN
    machine: MachineKind = UNKNOWN_MACHINE
    room: DiskRoom = _ALWAYS
    told: Told = Told.NOTHING
    growth_note: GrowthNote | None = None

    @property
    def hard_state(self) -> HardState:
        """The durable hard state. Entries that a snapshot replaces count as committed, and so do
        entries that the group lost.
        """
        hard_state, orphans = self.store.hard_state, self.store.orphans
        committed = hard_state.committed
        if self.restored is not None:
            committed = max(committed, self.restored.header.index)
        if orphans is not None:
            committed = max(committed, orphans.last)
        return hard_state._replace(committed=committed)

    @property
    def configuration(self) -> bytes:
        """The configuration where the log begins; empty for the group's first one."""
        snapshot = self.restored or self.awaited
        return b"" if snapshot is None else snapshot.header.configuration


def open_and_restore(
    disk: Disk,
    config: NodeConfig,
    machine: StateMachine,
    room: DiskRoom = _ALWAYS,
    state_folder: str | None = None,
) -> Opened:
    """Open the store and restore the state machine from its newest usable snapshot.

    Blocks; may run in any thread. `room` is that of the disk, if a reserve is kept on it. For
    `state_folder` see GrowthNote.

    Raises as `open_store`, and:
        ConfigInvalid: the settings ask for snapshots, but the state machine has none.
        SnapshotLost: the log's beginning is dropped, and no snapshot replaces it.
        RestoreFailed: the state machine raised.
        FirstVotersDiffer: the group began with other voters than the settings name.
        BirthUnreadable: the folder's record of the first voters cannot be read.
    """
    can_snapshot = isinstance(machine, SnapshottingMachine)
    if config.snapshots.is_on and not can_snapshot:
        raise ConfigInvalid(
            "snapshots", "the state machine has no methods snapshot() and restore()"
        )
    room.begin()
    log_disk = disk if room is _ALWAYS else room.disk
    store = open_store(
        log_disk, str(config.data_dir), config.store, config.group, config.node_id, disk
    )
    try:
        folder = SnapshotFolder(disk, node_folder(str(config.data_dir), config.node_id))
        restored, awaited = _restore(folder, store, machine, config.group)
        opened = Opened(store, folder, restored, awaited, keeps_nothing(machine))
        birth = _settled_birth(log_disk, config, opened)
        room.opened()
        noted = NotedMember(config.group, config.node_id, str(config.data_dir.absolute()))
        note = GrowthNote(disk, noted, state_folder)
        kind = machine_kind(machine)
        opened = opened._replace(birth=birth, machine=kind, room=room, growth_note=note)
        return opened._replace(told=_told(opened, note, new=config.new))
    except BaseException:
        store.close()
        raise


def _restore(
    folder: SnapshotFolder, store: SegmentStore, machine: StateMachine, group: str
) -> tuple[Snapshot | None, Snapshot | None]:
    """Open the folder and restore the machine; return the snapshots restored and awaited."""
    with failing("open", folder.path):
        if isinstance(machine, SnapshottingMachine):
            folder.open()
            try:
                return restore_newest(folder, store, machine, group), None
            except SnapshotLost:
                if (awaited := find_awaited(folder, store, machine, group)) is None:
                    raise
                return None, awaited
        if store.first_index > 0 and folder.indexes():
            problem = "the state machine has no method restore()"
            raise SnapshotLost(folder.path, store.first_index, (problem,))
    return None, None


def _settled_birth(disk: Disk, config: NodeConfig, opened: Opened) -> BirthRecord:
    """Settle how the group began, durably, before the member takes part."""
    path = node_folder(str(config.data_dir), config.node_id)
    in_snapshot = opened.configuration
    changed = bool(opened.store.configuration_indexes) or (
        bool(in_snapshot) and decode_configuration(in_snapshot).index != BEFORE_FIRST_INDEX
    )
    try:
        file = BirthFile(disk, path)
        return settle_birth(file, opened.store, config.group, config.began_with, changed=changed)
    except OSError as cause:
        raise DiskFailed("open", f"{path}/{BIRTH}", cause) from cause


def _told(opened: Opened, note: GrowthNote, *, new: bool) -> Told:
    """Find out what is known about the group from outside of the folder. `new`: see NodeConfig."""
    store = opened.store
    holds_nothing = (
        store.standing is Standing.FRESH
        and store.last_index == BEFORE_FIRST_INDEX
        and store.hard_state.term == 0
        and not opened.birth.birth
    )
    found = note.found()
    if found is None:
        return Told.NEW if new and holds_nothing else Told.NOTHING
    if not (new and holds_nothing):
        for problem in note.mend():
            logger.warning("the note that the group has grown is in one place only: %s", problem)
        return Told.GROWN
    logger.warning(
        "%s said that the group had grown, and is removed: this start says that it is new", found
    )
    try:
        note.remove()
    except OSError as cause:
        raise DiskFailed("remove", found, cause) from cause
    return Told.NEW


def incoming_for(
    opened: Opened, group: str, machine: StateMachine, sync_bytes: int = SYNC_BYTES
) -> IncomingSnapshot | None:
    """Return the receiver of a leader's snapshot; None if the machine cannot restore one."""
    if not isinstance(machine, SnapshottingMachine):
        return None
    return IncomingSnapshot(opened.folder, group, snapshot_format(machine), sync_bytes)


def configuration_problem(content: bytes) -> str | None:
    """Return the problem of the configuration in a snapshot's header, or None."""
    try:
        if content:
            decode_configuration(content)
    except ConfigurationMalformed as error:
        return error.problem
    return None


def find_awaited(
    folder: SnapshotFolder, store: LogStore, machine: SnapshottingMachine, group: str
) -> Snapshot | None:
    """Find the snapshot that the node was installing when it stopped.

    It is of an entry that the log does not reach yet, and no snapshot that the log reaches is
    usable. All its sums are valid.
    """
    named = _name_judge(snapshot_format(machine), group)
    folder.look_at_all_again()
    newest = folder.find_newest(
        lambda header: named(header) if header.index > store.last_index else "it is not usable"
    ).newest
    if newest is None:
        return None
    folder.make_durable(newest)
    index = newest.header.index
    logger.warning("the restore of the snapshot of entry %d waits until the log reaches it", index)
    return Snapshot(newest.header, newest.path, newest.size)


Judge = Callable[[SnapshotHeader], str | None]


def _name_judge(wanted: str, group: str) -> Judge:
    """Return a judge that accepts snapshots of this group that the state machine can read."""

    def judge(header: SnapshotHeader) -> str | None:
        if header.group != group:
            return f"it is of group {header.group}"
        if header.machine != wanted:
            return f"it has the format {header.machine!r}, the state machine reads {wanted!r}"
        return configuration_problem(header.configuration)

    return judge


def _log_judge(store: LogStore, wanted: str, group: str) -> Judge:
    """Return a judge that accepts snapshots with which this log can start."""
    named = _name_judge(wanted, group)

    def judge(header: SnapshotHeader) -> str | None:
        if (problem := named(header)) is not None:
            return problem
        if header.index > store.last_index:
            return f"it is of entry {header.index}, the log ends with entry {store.last_index}"
        if header.index < store.first_index - 1:
            return f"it is of entry {header.index}, the log begins with entry {store.first_index}"
        here = (store.term_at(header.index), store.chain_at(header.index))
        if here != (header.term, header.chain_crc):
            return f"entry {header.index} of this log is another one"
        return None

    return judge


def restore_newest(
    folder: SnapshotFolder, store: LogStore, machine: SnapshottingMachine, group: str
) -> Snapshot | None:
    """Restore the machine from the newest valid snapshot of this log; return that snapshot.

    Checks every sum before the machine reads a byte. Raises SnapshotLost, and as `restore`.
    """
    judge = _log_judge(store, snapshot_format(machine), group)
    newest, problems = folder.find_newest(judge)
    for problem in problems:
        logger.warning("a snapshot cannot be used: %s", problem)
    if newest is None:
        if store.first_index > 0:
            raise SnapshotLost(folder.path, store.first_index, tuple(problems))
        return None
    folder.make_durable(newest)
    restore(machine, newest.chunks, newest.path)
    return Snapshot(newest.header, newest.path, newest.size)
