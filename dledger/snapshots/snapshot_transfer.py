"""Carries snapshots between members: reads pieces that leave, writes those that arrive, in threads.

The core says which bytes go to whom, and judges what arrived. Here the bytes are moved: one piece
is read and one written at a time, beside the loop that appends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from dledger.core.messages import InstallSnapshot
from dledger.core.replica import Replica
from dledger.core.snapshot.snapshot_offer import SnapshotOffer
from dledger.errors import SnapshotCorrupt
from dledger.network.peer_problems import LACKS_SNAPSHOT
from dledger.network.ways import Way, Ways
from dledger.snapshots.beside import Beside, Continuation
from dledger.snapshots.snapshot_source import Identity, NodeSnapshots
from dledger.store.incoming_snapshot import IncomingSnapshot, Received, SnapshotUnwanted
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder

logger = logging.getLogger(__name__)

# Pieces that wait for this node's disk, each way: some peers' windows. More is dropped, and asked
# for again: memory stays flat however slow the disk is.
MAX_WAITING_PIECES = 32


# How often a leader looks whether a peer needs a snapshot that it does not have.
WATCH_INTERVAL_S = 2.0


class Installing(NamedTuple):
    """A snapshot on its way to this node: of which entry, how much of its file is here."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    received: int
    size: int


class _Arrived(NamedTuple):
    message: InstallSnapshot
    received: Received | None  # None: it was refused


class SnapshotTransfer:
    """Both sides of one node.

    Args:
        folder: where this node's snapshots are.
        incoming: what receives; None for a node whose machine takes none.
        source: which there are to be sent.
        ways: to the others.
        wake: has the driver take a turn.
        log_replaced: told in a turn that the log is begun anew for this snapshot's sake.
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
        self._checked: Identity | None = None  # what was read through before its first piece left
        self._reads = False  # whether a piece is being read
        self._writes = False  # whether one is being written
        self._said: Identity | None = None
        self._said_lacking: set[str] = set()
        self.next_look_at = 0.0
        self.installing: Installing | None = None

    # --- in the node's turns ----------------------------------------------------------------

    def send(self, link: Way, peer: str, message: InstallSnapshot) -> None:
        """Let a message of the core leave; a piece, once it is read."""
        if not message.length:
            link.send(message)
        elif len(self._leaving) < MAX_WAITING_PIECES:
            self._leaving.append((peer, message))
            self._read_next()

    def turn(self, replica: Replica, *, sync_runs: bool) -> None:
        """Take what has to be written, and tell the core what was.

        A log is not begun anew while a sync runs: its record would be that of the old log.
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
                return
            elif replica.receiver.install(message, received.snapshot.group):
                self._log_replaced(received.snapshot)
            self._arrived.popleft()

    # --- the bytes ----------------------------------------------------------------------------

    def _read_next(self) -> None:
        """Begin to read the next piece that leaves, if none is being read."""
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
        """The newest snapshot is broken: find the newest one that is not."""
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
        """Begin to write the next piece that arrived, if none is being written."""
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
        self.installing = Installing(offer.index, received.stored, offer.size)
        if self._said != offer.identity:
            self._said = offer.identity
            logger.warning(
                "this member is behind the leader's log: it receives a snapshot of entry %d, "
                "%d bytes",
                offer.index,
                offer.size,
            )

    def look(self, replica: Replica, now: float) -> None:
        """Say once of each peer that it needs a snapshot which this leader does not have.

        To be called at `next_look_at`.
        """
        self.next_look_at = now + WATCH_INTERVAL_S
        lacking = {p for p, d in replica.dispatchers.items() if d.lacks_snapshot}
        for peer in sorted(lacking - self._said_lacking):
            logger.warning("peer %s %s", peer, LACKS_SNAPSHOT)
        self._said_lacking = lacking

    def installed(self) -> None:
        """The state machine has the snapshot: nothing is under way any more."""
        self.installing = None

    def close(self) -> None:
        """Close the part that is being received. Nothing may run any more."""
        if self._incoming is not None:
            self._incoming.close()
