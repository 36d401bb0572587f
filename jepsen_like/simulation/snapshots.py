"""Snapshots of one simulated member: written by policy, sent, received, and given to its machine.

What moves the bytes in a node is tasks and threads; here it happens within the turns. What decides
is the product's own: the source, the receiver of pieces, the folder, and the rule what may go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from dledger.core.entry_dispatcher import needed_snapshots
from dledger.core.messages import InstallSnapshot
from dledger.core.replica import Replica
from dledger.entry import Entry
from dledger.errors import SnapshotLost
from dledger.snapshots.log_retention import first_kept
from dledger.snapshots.restoring import Opened, find_awaited, restore_newest
from dledger.snapshots.snapshot_header import snapshot_header
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.snapshots.snapshot_source import NodeSnapshots
from dledger.store.disk import Disk
from dledger.store.folder import node_folder
from dledger.store.incoming_snapshot import IncomingSnapshot, Received, SnapshotUnwanted
from dledger.store.segment_store import SegmentStore
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.invariants import Invariants
from jepsen_like.simulation.machine import SumMachine
from jepsen_like.simulation.session_history import SessionFold
from jepsen_like.simulation.swarm import SnapshotStyle

# How a snapshot's chunks are cut: at no place that means anything.
CHUNK_BYTES = 61
# Pieces of a snapshot are so small that a power cut meets every one of them.
SYNC_BYTES = 512
FORMAT = "simulation/1"


class MachineState:
    """All that a member folds the log into, as one state machine."""

    snapshot_format = FORMAT

    def __init__(self) -> None:
        self.sums = SumMachine()
        self.sessions = SessionFold()

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        """Apply entries in log order, no-ops included; what clients are answered."""
        return self.sessions.apply(entries)

    def snapshot(self) -> Iterator[bytes]:
        """The state in chunks."""
        state = self.sums.sum.to_bytes(4, "big") + self.sessions.state()
        return (state[at : at + CHUNK_BYTES] for at in range(0, len(state), CHUNK_BYTES))

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Take the state of a snapshot."""
        state = b"".join(chunks)
        self.sums.sum = int.from_bytes(state[:4], "big")
        self.sessions.restore(state[4:])


class _Arrived(NamedTuple):
    message: InstallSnapshot
    received: Received


class MemberSnapshots:
    """Everything about snapshots that a crash takes away. Made when the process starts."""

    def __init__(
        self,
        name: str,
        disk: Disk,
        base: str,
        group: str,
        store: SegmentStore,
        style: SnapshotStyle,
        coverage: Coverage,
    ) -> None:
        self.machine = MachineState()
        self._name = name
        self._group = group
        self._store = store
        self._style = style
        self._policy = SnapshotPolicy(
            every_entries=style.every_entries,
            kept=style.kept,
            trailing_entries=style.trailing_entries,
        )
        self._coverage = coverage
        self._folder = SnapshotFolder(disk, node_folder(base, name))
        self._folder.open()
        self.source = NodeSnapshots(store, style.piece_bytes)
        self._incoming = IncomingSnapshot(self._folder, group, FORMAT, SYNC_BYTES)
        self._arrived: deque[_Arrived] = deque()
        self.awaited: Snapshot | None = None
        self.opened = Opened(store, self._folder, None)

    def open(self) -> None:
        """Restore the machine from disk."""
        restored = None
        try:
            restored = restore_newest(self._folder, self._store, self.machine, self._group)
        except SnapshotLost:
            self.awaited = find_awaited(self._folder, self._store, self.machine, self._group)
            if self.awaited is None:
                raise
            self._coverage.count("snapshots awaited after a crash")
        if restored is not None:
            self.source.add(restored)
            self._coverage.count("snapshots restored at the start")
        self.opened = Opened(self._store, self._folder, restored, self.awaited)

    # --- writing ------------------------------------------------------------------------------

    def write_if_due(self, replica: Replica, now: float) -> None:
        """Save the state and drop the log that is not needed any more, as a Snapshotter does."""
        applied, last = replica.state.applied, self.source.last
        since = applied - (last.header.index if last is not None else -1)
        lacking = any(d.lacks_snapshot for d in replica.dispatchers.values()) and since > 0
        if not self._style.every_entries or self.awaited is not None or applied < 0:
            return
        if since < self._style.every_entries and not lacking:
            return
        if applied < self._store.first_index:
            return
        membership = replica.state.membership
        header = snapshot_header(self._store, membership, applied, self._group, FORMAT)
        try:
            snapshot = self._folder.write(header, self.machine.snapshot(), lambda: False)
        except OSError:
            self._coverage.count("snapshots that the disk did not take")
            return
        assert snapshot is not None
        self.source.add(snapshot)
        replica.state.membership.forget_before(applied)
        self._coverage.count("snapshots written")
        self._tidy(replica, now)

    def _tidy(self, replica: Replica, now: float) -> None:
        needed = needed_snapshots(replica.dispatchers.values(), now)
        self._folder.keep_newest(self._style.kept, [offer.index for offer in needed])
        indexes = self._folder.indexes()
        self.source.keep(indexes)
        before = first_kept(self._policy, replica.state.applied, indexes, None)
        before = min([before, *(offer.begin.before_index + 1 for offer in needed)])
        if before <= self._store.first_index:
            return
        self._store.note_committed(replica.appliable)
        first = self._store.first_index
        self._store.discard_before(before)
        replica.view.discard_before(self._store.first_index)
        self._coverage.count("logs cut at the beginning", self._store.first_index > first)

    def remove_discarded(self) -> None:
        """Remove files that the log no longer begins with."""
        if (files := self._store.take_discarded()) is not None:
            files.remove()

    # --- moving -------------------------------------------------------------------------------

    def filled(self, message: InstallSnapshot) -> InstallSnapshot | None:
        """The message with the bytes it announces; None if they are not there any more."""
        if not message.length:
            return message
        snapshot = self.source.find(message.offer)
        if snapshot is None:
            return None
        self._coverage.count("pieces of snapshots sent")
        piece = self._folder.read_piece(snapshot, message.offset, message.length)
        return message._replace(payload=piece, crc=crc32(piece))

    def take_pieces(self, replica: Replica) -> None:
        """Write what arrived."""
        for message in replica.receiver.take_pieces():
            try:
                received = self._incoming.take(message.offer, message.offset, message.payload)
            except SnapshotUnwanted:
                # What a crash left of a part may be broken: it begins again.
                self._coverage.count("snapshots that arrived broken")
                replica.receiver.received(message, 0)
            except OSError:
                self._coverage.count("snapshots that the disk did not take")
                replica.receiver.refused(message)
            else:
                self._arrived.append(_Arrived(message, received))

    def tell(
        self,
        replica: Replica,
        invariants: Invariants,
        log_replaced: Callable[[Snapshot], None],
        *,
        sync_runs: bool,
    ) -> None:
        """Tell the core what is here, as a SnapshotTransfer does."""
        while self._arrived:
            message, received = self._arrived[0]
            if received.snapshot is None:
                replica.receiver.received(message, received.stored)
            elif sync_runs:
                return
            elif replica.receiver.install(message, received.snapshot.group):
                invariants.restarting(self._name, message.offer.begin, message.offer.index)
                self._coverage.count("logs begun anew")
                self.awaited = received.snapshot
                log_replaced(received.snapshot)
            else:
                self._coverage.count("snapshots of what the log holds")
            self._arrived.popleft()

    def restore_if_due(self, replica: Replica, invariants: Invariants) -> None:
        """Give the machine the snapshot that it waits for, once the log has reached it."""
        snapshot = self.awaited
        if snapshot is None or replica.appliable < snapshot.header.index:
            return
        index = snapshot.header.index
        self.machine.restore(self._folder.reader(snapshot).chunks())
        self.awaited = None
        replica.applied_to(index)
        self.source.add(snapshot)
        invariants.restored(self._name, index, self.machine.sums.sum)
        self._coverage.count("snapshots installed")
