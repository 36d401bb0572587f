"""Writes snapshots while appends go on, and drops the part of the log that they replace."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from dledger.core.entry_dispatcher import needed_snapshots
from dledger.core.membership.configuration_codec import encode_configuration
from dledger.core.membership.membership import Membership
from dledger.core.replica import Replica
from dledger.core.snapshot.snapshot_offer import SnapshotOffer
from dledger.errors import (
    ConfigInvalid,
    DiskFailed,
    DLedgerError,
    MachineFailed,
    SnapshotUnavailable,
)
from dledger.machine_check import raised, snapshot_chunks
from dledger.network.ways import Ways
from dledger.node_end import NodeEnd
from dledger.snapshots.beside import Beside, Continuation
from dledger.snapshots.log_retention import first_kept, kept_with_new_snapshots, log_kept_from
from dledger.snapshots.restoring import Opened
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.snapshots.snapshot_source import NodeSnapshots
from dledger.state_machine import SnapshottingMachine, StateMachine, snapshot_format
from dledger.store.log_store import LogStore
from dledger.store.snapshot_folder import Snapshot
from dledger.store.snapshot_format import SnapshotHeader

logger = logging.getLogger(__name__)

NO_METHODS = "the state machine has no methods snapshot() and restore()"

# How often the node checks whether a snapshot is due. The log grows by a few segments meanwhile.
LOOK_INTERVAL_S = 0.25

# The pause after a failed snapshot (usually because of a full disk).
RETRY_S = 30.0

# The answer to a request for a snapshot.
SnapshotAnswer = Snapshot | DLedgerError


class Surroundings(NamedTuple):
    """The surroundings of the snapshots of one node.

    Attributes:
        group: the name in the files.
        opened: the folder, and what was found in it.
        machine: the state machine to save and restore; it may have no methods for that.
        source: the snapshots that can be sent; the replica uses it too.
        replica: of the node.
        ways: to its peers.
        beside: runs blocking work beside the loop.
        wake: requests a turn soon.
        wake_look: requests a call of `look` soon.
    """

    group: str
    opened: Opened
    machine: StateMachine
    source: NodeSnapshots
    replica: Replica
    ways: Ways
    beside: Beside
    wake: Callable[[], None]
    wake_look: Callable[[], None]


class Snapshotter:
    """Writes one node's snapshots, by policy and on request, one at a time.

    Call `look` at `next_look_at`, and after a request for a snapshot.

    Args:
        around: the surroundings of the node's snapshots. `wake` follows a new beginning of the log,
            which a sync must record. This class keeps `source` up to date.
        policy: when to write snapshots, and how many to keep.
    """

    def __init__(self, around: Surroundings, policy: SnapshotPolicy) -> None:
        machine, opened, snapshots = around.machine, around.opened, around.source
        self._group = around.group
        self._set_policy = policy
        self._room = opened.room
        self._machine = machine if isinstance(machine, SnapshottingMachine) else None
        self._store, self._folder = opened.store, opened.folder
        self._snapshots = snapshots
        if opened.restored is not None:
            snapshots.add(opened.restored)
        self._replica = around.replica
        self._log_cut = around.wake
        self._retention = log_kept_from(machine)
        self._indexes: list[int] | None = None  # of the snapshots, once the folder was read
        self._cut = False  # whether the log's beginning was dropped, so that files may have to go
        self._waiting: list[Callable[[SnapshotAnswer], None]] = []
        self._asked: list[Callable[[SnapshotAnswer], None]] = []  # waiting callers
        self._retry_at = 0.0
        self._busy = False  # whether files are being written, read or removed
        self._end: NodeEnd | None = None
        self._beside = around.beside
        self._wake = around.wake_look
        self.next_look_at = 0.0
        if self._machine is None and self._retention is None:
            self.next_look_at = float("inf")

    def go_by(self, policy: SnapshotPolicy) -> None:
        """Change the policy from the next look on. Raises ConfigInvalid without snapshots."""
        if policy.is_on and self._machine is None:
            raise ConfigInvalid("snapshots", NO_METHODS)
        self._set_policy = policy

    @property
    def _policy(self) -> SnapshotPolicy:
        """The policy. While the disk is full it keeps one snapshot: there may be no room for
        another one, and no entry to take it at.
        """
        policy = self._set_policy
        return replace(policy, kept=1) if self._room.is_short else policy

    def ask(self, done: Callable[[SnapshotAnswer], None]) -> None:
        """Write a snapshot of the state now, or a little later; `done` is called once.

        If the newest one is of the last applied entry already, nothing is written. Raises
        SnapshotUnavailable, NodeClosing.
        """
        if self._end is not None:
            raise self._end.closing()
        if self._machine is None:
            raise SnapshotUnavailable(NO_METHODS)
        self._waiting.append(done)
        self._look_soon()

    def look(self, now: float) -> None:
        """Begin the snapshot that is due or requested, if no work is in progress."""
        if now < self.next_look_at:
            return
        self.next_look_at = now + LOOK_INTERVAL_S
        if self._busy or self._end is not None:
            return
        drops = self._retention is not None or self._room.is_short
        if drops and self._machine is not None and self._indexes is None:
            self._find_snapshots()
            return
        if drops:
            self._drop(now)
        if self._machine is not None and (self._waiting or self._is_due(now)):
            self._asked, self._waiting = self._waiting, []
            self._write(self._machine, now)
        else:
            self._remove_discarded()

    def close(self, end: NodeEnd) -> None:
        """Give up the snapshot being written, and answer every caller that waits."""
        self._end = end
        self._answer(end.closing())
        self._asked, self._waiting = self._waiting, []
        self._answer(end.closing())

    # --- writing ------------------------------------------------------------------------------

    def _is_due(self, now: float) -> bool:
        policy, applied = self._policy, self._replica.state.applied
        last = self._snapshots.last.header if self._snapshots.last else None
        since = applied - (last.index if last else -1)
        if since <= 0 or now < self._retry_at:
            return False
        if applied < self._store.first_index:
            return False  # the log has to reach the awaited snapshot first
        if any(d.lacks_snapshot for d in self._replica.dispatchers.values()):
            return True  # a peer needs a snapshot, and there is none to send
        if not policy.is_on:
            return False
        if policy.every_entries and since >= policy.every_entries:
            return True
        if self._holds_up_retention():
            return True
        if not policy.every_bytes:
            return False
        header = self._store.header_at(applied)
        last_pos = last.end_pos if last else self._store.begin_pos
        return header.pos + header.size - last_pos >= policy.every_bytes

    def _write(self, machine: SnapshottingMachine, now: float) -> None:
        """Begin to write a snapshot, and then drop the part of the log that it replaces."""
        applied = self._replica.state.applied
        last = self._snapshots.last
        if last is not None and last.header.index == applied:
            self._has_written(last, now)
            return
        if applied < self._store.first_index:
            problem = "the state machine has applied no entry of this log"
            self._has_failed(SnapshotUnavailable(problem), now)
            return
        membership = self._replica.state.membership
        format_ = snapshot_format(machine)
        header = snapshot_header(self._store, membership, applied, self._group, format_)
        try:
            # This is one step of the loop, between two applies: the state is that of `applied`.
            chunks = snapshot_chunks(machine)
        except Exception as error:
            self._has_failed(_unavailable(f"the state machine raised {error!r}", error), now)
            return

        def write() -> Continuation:
            try:
                snapshot = self._folder.write(header, chunks, lambda: self._end is not None)
            except DiskFailed:
                raise  # its name may not be durable: the node ends
            except OSError as error:
                path, reason = error.filename or self._folder.path, error.strerror or error
                failure = _unavailable(f"{path}: {reason}", error)
            except Exception as error:
                failure = _unavailable(f"the state machine raised {error!r}", error)
            else:
                return lambda: self._has_written(snapshot, now)
            return lambda: self._has_failed(failure, now)

        self._busy = True
        self._beside(write)

    def _has_failed(self, error: SnapshotUnavailable, now: float) -> None:
        self._end_work()
        self._retry_at = now + RETRY_S
        logger.warning("%s", error)
        self._answer(error)

    def _has_written(self, snapshot: Snapshot | None, now: float) -> None:
        if snapshot is None:
            self._end_work()
            self._answer((self._end or NodeEnd()).closing())
            return
        self._snapshots.add(snapshot)
        self._replica.state.membership.forget_before(snapshot.header.index)
        self._drop_covered(snapshot, now)

    def _end_work(self) -> None:
        self._busy = False
        if self._waiting:
            self._look_soon()

    def _look_soon(self) -> None:
        self.next_look_at = 0.0
        self._wake()

    def _answer(self, answer: SnapshotAnswer) -> None:
        asked, self._asked = self._asked, []
        for done in asked:
            done(answer)

    def installed(self, snapshot: Snapshot) -> None:
        """Note that the state machine was restored from a leader's snapshot."""
        self._snapshots.add(snapshot)

    def log_replaced(self) -> None:
        """Note that the log was restarted: the files of the old one have to be removed."""
        self._cut = True
        self._look_soon()

    # --- dropping -----------------------------------------------------------------------------

    def _drop_covered(self, snapshot: Snapshot, now: float) -> None:
        """Remove old snapshots, then the part of the log that the oldest kept one replaces.

        The log is kept from the oldest snapshot on, so that a start can use any of them.
        """
        kept, folder = self._policy.kept, self._folder
        needed = [offer.index for offer in self._needed(now)]

        def tidy() -> Continuation:
            try:
                folder.keep_newest(kept, needed)
                indexes = folder.indexes()
            except OSError as error:
                problem = error
                return lambda: self._keeps_all(problem, snapshot)
            return lambda: self._has_tidied(indexes, snapshot, now)

        self._busy = True
        self._beside(tidy)

    def _keeps_all(self, problem: OSError, snapshot: Snapshot) -> None:
        self._end_work()
        logger.warning("old snapshots stay: %s", problem)
        self._answer(snapshot)
        self._remove_discarded()

    def _has_tidied(self, indexes: list[int], snapshot: Snapshot, now: float) -> None:
        self._end_work()
        self._snapshots.keep(indexes)
        self._indexes = indexes
        self._drop(now)
        self._answer(snapshot)
        self._remove_discarded()

    def _needed(self, now: float) -> Sequence[SnapshotOffer]:
        """Return the snapshots that are being sent to members that are behind."""
        replica = self._replica
        return needed_snapshots(replica.dispatchers.values(), replica.patience.at(now))

    def _find_snapshots(self) -> None:
        """Find the existing snapshots: retention may use them before a new one is written."""

        def find() -> Continuation:
            try:
                indexes = self._folder.indexes()
            except OSError as error:
                problem = error
                return lambda: self._found_none(problem)
            return lambda: self._has_found(indexes)

        self._busy = True
        self._beside(find)

    def _found_none(self, problem: OSError) -> None:
        logger.warning("the log is kept until the next snapshot: %s", problem)
        self._has_found([])

    def _has_found(self, indexes: list[int]) -> None:
        self._end_work()
        self._indexes = indexes
        self._look_soon()

    def _drop(self, now: float) -> None:
        """Drop the log that policy, snapshots, state machine and lagging members do not need."""
        applied, kept_from = self._replica.state.applied, self._kept_from()
        snapshots = None if self._machine is None else self._usable()
        before = first_kept(self._policy, applied, snapshots, kept_from)
        before = min([before, *(offer.begin.before_index + 1 for offer in self._needed(now))])
        before = min(before, self._store.synced_index)
        first = self._store.first_index
        if not first < before <= self._store.last_index:
            return
        if self._store.segment_begin(before).first_index == first:
            return  # only whole segments are dropped
        self._store.note_committed(self._replica.appliable)
        self._store.discard_before(before)
        self._cut = True
        self._replica.view.discard_before(self._store.first_index)
        self._log_cut()

    def _usable(self) -> Sequence[int]:
        """Return the snapshots that a start must be able to use; only the newest on a full disk."""
        indexes = self._indexes or []
        return indexes[:1] if self._room.is_short else indexes

    def _kept_from(self) -> int | None:
        """Return the first entry that the state machine needs. Raises MachineFailed."""
        if self._retention is None:
            return None
        try:
            return self._retention()
        except Exception as error:
            applied = self._replica.state.applied
            raise MachineFailed(applied, applied, raised(error)) from error

    def _holds_up_retention(self) -> bool:
        """Return whether newer snapshots alone would let entries be dropped that the state machine
        frees, or that a full disk has no room for.
        """
        kept_from, applied = self._kept_from(), self._replica.state.applied
        if kept_from is None and self._room.is_short:
            kept_from = applied + 1
        if not kept_from or self._indexes is None:
            return False
        wanted = kept_with_new_snapshots(self._policy, applied, kept_from)
        if wanted <= first_kept(self._policy, applied, self._usable(), kept_from):
            return False
        first = self._store.first_index
        return wanted > first and self._store.segment_begin(wanted).first_index > first

    def _remove_discarded(self) -> None:
        if not self._cut or (files := self._store.take_discarded()) is None:
            return  # nothing to remove, or its record is not durable yet

        def remove() -> Continuation:
            try:
                files.remove()
            except DiskFailed as error:
                problem = error
                return lambda: self._leaves_files(problem)
            return self._end_work

        self._busy = True
        self._beside(remove)

    def _leaves_files(self, problem: DiskFailed) -> None:
        self._end_work()
        logger.warning("files of the log's beginning stay until the next start: %s", problem)


def _unavailable(reason: str, cause: Exception) -> SnapshotUnavailable:
    error = SnapshotUnavailable(reason)
    error.__cause__ = cause
    return error


def snapshot_header(
    store: LogStore, membership: Membership, applied: int, group: str, machine: str
) -> SnapshotHeader:
    """Make the header for the state after the entry `applied`.

    It has no configuration if this member does not know the group's configuration yet.
    """
    entry = store.header_at(applied)
    numbered = membership.at(applied)
    return SnapshotHeader(
        applied,
        entry.term,
        entry.pos,
        entry.size,
        entry.chain_crc,
        group,
        machine,
        encode_configuration(*numbered) if numbered.configuration.voters else b"",
    )
