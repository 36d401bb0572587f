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

import trio

from dledger.core.messages import InstallSnapshot
from dledger.core.replica import Replica
from dledger.core.snapshot.snapshot_offer import SnapshotOffer
from dledger.errors import SnapshotCorrupt
from dledger.network.channel import Channel
from dledger.network.links import Links
from dledger.network.peer_status import LACKS_SNAPSHOT
from dledger.snapshots.snapshot_source import Identity, NodeSnapshots
from dledger.store.incoming_snapshot import IncomingSnapshot, Received, SnapshotUnwanted
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from dledger.waits.blocking_work import IN_A_THREAD, RunBlocking

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
        links: the connections to the others.
        wake: has the driver take a turn.
        log_replaced: told in a turn that the log is begun anew for this snapshot's sake.
        run_blocking: reads and writes pieces.
    """

    def __init__(
        self,
        folder: SnapshotFolder,
        incoming: IncomingSnapshot | None,
        source: NodeSnapshots,
        links: Links,
        wake: Callable[[], None],
        log_replaced: Callable[[Snapshot], None],
        run_blocking: RunBlocking = IN_A_THREAD,
    ) -> None:
        self._run_blocking = run_blocking
        self._folder = folder
        self._incoming = incoming
        self._source = source
        self._links = links
        self._wake = wake
        self._log_replaced = log_replaced
        self._leaving: deque[tuple[str, InstallSnapshot]] = deque()
        self._arriving: deque[InstallSnapshot] = deque()
        self._arrived: deque[_Arrived] = deque()
        self._checked: Identity | None = None  # what was read through before its first piece left
        self._something = trio.lowlevel.ParkingLot()
        self._said: Identity | None = None
        self.installing: Installing | None = None

    # --- in the driver's turns ----------------------------------------------------------------

    def send(self, link: Channel, peer: str, message: InstallSnapshot) -> None:
        """Let a message of the core leave; a piece, once it is read."""
        if not message.length:
            link.send(message)
        elif len(self._leaving) < MAX_WAITING_PIECES:
            self._leaving.append((peer, message))
            self._something.unpark_all()

    def turn(self, replica: Replica, *, sync_runs: bool) -> None:
        """Take what has to be written, and tell the core what was.

        A log is not begun anew while a sync runs: its record would be that of the old log.
        """
        if pieces := replica.receiver.take_pieces():
            self._arriving += pieces[: MAX_WAITING_PIECES - len(self._arriving)]
            self._something.unpark_all()
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

    async def run_sending(self) -> None:
        """Read what leaves, one piece at a time, for ever."""
        while True:
            while not self._leaving:
                await self._something.park()
            peer, message = self._leaving.popleft()
            piece = await self._read(message)
            if piece is not None:
                message = message._replace(crc=crc32(piece), payload=piece)
                if (link := self._links.link_to(peer)) is not None:
                    link.send(message)

    async def _read(self, message: InstallSnapshot) -> bytes | None:
        """The bytes of a piece; None if there is no such snapshot any more."""
        snapshot = self._source.find(message.offer)
        if snapshot is None:
            return None
        checked = message.offer.identity == self._checked

        def read() -> bytes:
            if not checked:
                self._folder.reader(snapshot).verify()
            return self._folder.read_piece(snapshot, message.offset, message.length)

        try:
            piece = await self._run_blocking(read)
        except (OSError, SnapshotCorrupt) as error:
            logger.error("a snapshot cannot be sent: %s; taking the one before it", error)
            await self._look_for_another()
            return None
        self._checked = message.offer.identity
        return piece if len(piece) == message.length else None

    async def _look_for_another(self) -> None:
        """The newest snapshot is broken: find the newest one that is not."""
        self._leaving.clear()
        self._checked = None
        try:
            found = await self._run_blocking(self._folder.find_newest, lambda header: None)
        except OSError:
            self._source.replace(None)
            return
        reader = found.newest
        last = Snapshot(reader.header, reader.path, reader.size) if reader is not None else None
        self._source.replace(last)
        self._wake()

    async def run_receiving(self) -> None:
        """Write what arrived, one piece at a time, for ever."""
        while True:
            while not self._arriving:
                await self._something.park()
            message = self._arriving.popleft()
            self._arrived.append(_Arrived(message, await self._write(message)))
            self._wake()

    async def _write(self, message: InstallSnapshot) -> Received | None:
        """Write a piece; how much is here, or None if the snapshot is of no use here."""
        offer, incoming = message.offer, self._incoming
        try:
            if incoming is None:
                raise SnapshotUnwanted("the state machine here has no method restore()")
            received = await self._run_blocking(
                incoming.take, offer, message.offset, message.payload
            )
        except (OSError, SnapshotUnwanted) as error:
            self.installing = None
            logger.warning("the leader's snapshot of entry %d: %s", offer.index, error)
            return None
        self._note(offer, received)
        return received

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

    async def run_watching(self, replica: Replica) -> None:
        """Say once of each peer that it needs a snapshot which this leader does not have."""
        said: set[str] = set()
        while True:
            await trio.sleep(WATCH_INTERVAL_S)
            lacking = {p for p, d in replica.dispatchers.items() if d.lacks_snapshot}
            for peer in sorted(lacking - said):
                logger.warning("peer %s %s", peer, LACKS_SNAPSHOT)
            said = lacking

    def installed(self) -> None:
        """The state machine has the snapshot: nothing is under way any more."""
        self.installing = None

    def close(self) -> None:
        """Close the part that is being received. Nothing may run any more."""
        if self._incoming is not None:
            self._incoming.close()
