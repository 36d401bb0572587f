"""Moves snapshots between members: reads outgoing pieces and writes incoming ones, in threads.

The core decides which bytes go to which peer, and judges those that arrived. This module moves the
bytes: it reads one piece and writes one at a time, beside the loop that appends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from dledger.core.agenda import INSTALL
from dledger.core.messages import InstallSnapshot
from dledger.core.replica import Replica
from dledger.core.snapshot.snapshot_offer import SnapshotOffer
from dledger.errors import SnapshotCorrupt
from dledger.network.ways import Way, Ways
from dledger.snapshots.beside import Beside, Continuation
from dledger.snapshots.snapshot_source import Identity, NodeSnapshots
from dledger.status import InstallStatus
from dledger.store.incoming_snapshot import IncomingSnapshot, Received, SnapshotUnwanted
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder

logger = logging.getLogger(__name__)

# Pieces that wait for this node's disk, each way: the windows of several peers. Further pieces are
# dropped and sent again, so a slow disk does not use up memory.
MAX_WAITING_PIECES = 32

LACKS_SNAPSHOT = (
    "is behind the beginning of this log, and there is no snapshot to send it: have a state "
    "machine with snapshot() and restore(), or copy another member's folder while both are down"
)

# How often a leader checks whether a peer needs a snapshot that the leader does not have.
WATCH_INTERVAL_S = 2.0


class _Arrived(NamedTuple):
    message: InstallSnapshot
    received: Received | None  # None: it was refused


class SnapshotTransfer:
    """The sending and the receiving side of one node.

    Args:
        folder: this node's snapshots.
        incoming: receives snapshots; None if the node's machine cannot restore one.
        source: the snapshots that can be sent.
        ways: to the peers.
        wake: requests a turn.
        log_replaced: called in a turn in which the log was restarted for a snapshot.
        beside: reads and writes pieces.
    """

    def __init__(
        self,
        folder: SnapshotFolder,
        incoming: IncomingSnapshot | None,
        source: NodeSnapshots,
        ways: Ways,
        wake: Callable[[], None],
        log_replaced: Callable[[Snapshot], None],
        beside: Beside,
    ) -> None:
        self._folder = folder
        self._incoming = incoming
        self._source = source
        self._ways = ways
        self._wake = wake
        self._log_replaced = log_replaced
        self._beside = beside
        self._leaving: deque[tuple[str, InstallSnapshot]] = deque()
        self._arriving: deque[InstallSnapshot] = deque()
        self._arrived: deque[_Arrived] = deque()
        self._checked: Identity | None = None  # the snapshot whose sums were checked
        self._reads = False  # whether a piece is being read
        self._writes = False  # whether a piece is being written
        self._logged: Identity | None = None
        self._lacking_logged: set[str] = set()
        self.next_look_at = 0.0
        self.installing: InstallStatus | None = None

    # --- in the node's turns ----------------------------------------------------------------

    def send(self, link: Way, peer: str, message: InstallSnapshot) -> None:
        if not message.length:
            link.send(message)
        elif len(self._leaving) < MAX_WAITING_PIECES:
            self._leaving.append((peer, message))
            self._read_next()

    def turn(self, replica: Replica, *, sync_runs: bool) -> None:
        """Queue the pieces to write, and tell the core which were written.

        A log is not restarted while a sync runs, because that sync writes a record of the old log.
        """
        if pieces := replica.receiver.take_pieces():
            self._arriving += pieces[: MAX_WAITING_PIECES - len(self._arriving)]
            self._write_next()
        while self._arrived:
            message, received = self._arrived[0]
            if received is None:
                replica.receiver.refused(message)
            elif received.snapshot is None:
                replica.receiver.received(message, received.stored)
            elif sync_runs:
                replica.agenda.later |= INSTALL
                return
            elif replica.receiver.install(message, received.snapshot.group):
                self._log_replaced(received.snapshot)
            self._arrived.popleft()

    # --- the bytes ----------------------------------------------------------------------------

    def _read_next(self) -> None:
        """Begin to read the next outgoing piece, if none is being read."""
        while self._leaving and not self._reads:
            peer, message = self._leaving.popleft()
            if (snapshot := self._source.find(message.offer)) is not None:
                self._read(peer, message, snapshot)

    def _read(self, peer: str, message: InstallSnapshot, snapshot: Snapshot) -> None:
        self._reads = True
        checked = message.offer.identity == self._checked

        def read() -> Continuation:
            try:
                if not checked:
                    self._folder.reader(snapshot).verify()
                piece = self._folder.read_piece(snapshot, message.offset, message.length)
            except (OSError, SnapshotCorrupt) as error:
                problem = error
                return lambda: self._look_for_another(problem)
            return lambda: self._has_read(peer, message, piece)

        self._beside(read)

    def _has_read(self, peer: str, message: InstallSnapshot, piece: bytes) -> None:
        self._reads = False
        self._checked = message.offer.identity
        if len(piece) == message.length and (way := self._ways.link_to(peer)) is not None:
            way.send(message._replace(crc=crc32(piece), payload=piece))
        self._read_next()

    def _look_for_another(self, problem: Exception) -> None:
        """Find the newest intact snapshot, because the newest one is broken."""
        logger.error("a snapshot cannot be sent: %s; taking the one before it", problem)
        self._leaving.clear()
        self._checked = None

        def look() -> Continuation:
            try:
                reader = self._folder.find_newest(lambda header: None).newest
            except OSError:
                return lambda: self._has_found(None)
            if reader is None:
                return lambda: self._has_found(None)
            found = Snapshot(reader.header, reader.path, reader.size)
            return lambda: self._has_found(found)

        self._beside(look)

    def _has_found(self, last: Snapshot | None) -> None:
        self._reads = False
        self._source.replace(last)
        self._wake()
        self._read_next()

    def _write_next(self) -> None:
        """Begin to write the next incoming piece, if none is being written."""
        if not self._arriving or self._writes:
            return
        self._writes = True
        message, incoming = self._arriving.popleft(), self._incoming
        offer = message.offer

        def write() -> Continuation:
            try:
                if incoming is None:
                    raise SnapshotUnwanted("the state machine here has no method restore()")
                received = incoming.take(offer, message.offset, message.payload)
            except (OSError, SnapshotUnwanted) as error:
                problem = error
                return lambda: self._has_refused(message, problem)
            return lambda: self._has_written(message, received)

        self._beside(write)

    def _has_refused(self, message: InstallSnapshot, problem: Exception) -> None:
        self.installing = None
        logger.warning("the leader's snapshot of entry %d: %s", message.offer.index, problem)
        self._has_arrived(_Arrived(message, None))

    def _has_written(self, message: InstallSnapshot, received: Received) -> None:
        self._note(message.offer, received)
        self._has_arrived(_Arrived(message, received))

    def _has_arrived(self, arrived: _Arrived) -> None:
        self._writes = False
        self._arrived.append(arrived)
        self._wake()
        self._write_next()

    def _note(self, offer: SnapshotOffer, received: Received) -> None:
        self.installing = InstallStatus(offer.index, received.stored, offer.size)
        if self._logged != offer.identity:
            self._logged = offer.identity
            logger.warning(
                "this member is behind the leader's log: it receives a snapshot of entry %d, "
                "%d bytes",
                offer.index,
                offer.size,
            )

    def look(self, replica: Replica, now: float) -> None:
        """Log once for each peer that it needs a snapshot which this leader does not have.

        Call this at `next_look_at`.
        """
        self.next_look_at = now + WATCH_INTERVAL_S
        lacking = {p for p, d in replica.dispatchers.items() if d.lacks_snapshot}
        for peer in sorted(lacking - self._lacking_logged):
            logger.warning("peer %s %s", peer, LACKS_SNAPSHOT)
        self._lacking_logged = lacking

    def installed(self) -> None:
        """Note that the state machine has the snapshot: nothing is in progress any more."""
        self.installing = None

    def close(self) -> None:
        """Close the partial file being received. No read or write may be in progress."""
        if self._incoming is not None:
            self._incoming.close()
