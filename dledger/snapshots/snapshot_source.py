"""Which snapshots of this node can be sent to members that are behind."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dledger.core.snapshot.snapshot_offer import PIECE_BYTES, SnapshotOffer
from dledger.errors import OutsideLog
from dledger.store.log_store import LogStore
from dledger.store.snapshot_folder import Snapshot

Identity = tuple[int, int, int]


class _Known(NamedTuple):
    snapshot: Snapshot
    offer: SnapshotOffer


class NodeSnapshots:
    """The snapshots of one node that are on its disk and whole, as far as the node knows.

    Made before the replica, told by whoever writes, receives and removes snapshots.
    """

    def __init__(self, store: LogStore, piece_bytes: int = PIECE_BYTES) -> None:
        self.piece_bytes = piece_bytes
        self._store = store
        self._known: dict[Identity, _Known] = {}
        self._last: Snapshot | None = None

    @property
    def last(self) -> Snapshot | None:
        """The newest one; it may be older than the log, and of no use to others then."""
        return self._last

    def add(self, snapshot: Snapshot) -> None:
        """This one is there now."""
        if self._last is None or self._last.header.index <= snapshot.header.index:
            self._last = snapshot

    def keep(self, indexes: Collection[int]) -> None:
        """Only snapshots of these entries are left."""
        self._known = {at: known for at, known in self._known.items() if at[0] in indexes}

    def replace(self, last: Snapshot | None) -> None:
        """The newest one turned out to be broken; what is left."""
        self._known.clear()
        self._last = last

    def find(self, offer: SnapshotOffer) -> Snapshot | None:
        """The snapshot that was offered, if it is still there."""
        known = self._known.get(offer.identity)
        return known.snapshot if known is not None else None

    # --- as the core's source -----------------------------------------------------------------

    def newest(self) -> SnapshotOffer | None:
        """The newest one that the log goes on from; None without."""
        snapshot = self._last
        if snapshot is None:
            return None
        header = snapshot.header
        known = self._known.get((header.index, header.term, header.chain_crc))
        if known is not None and self.holds(known.offer):
            return known.offer
        try:
            begin = self._store.begin_for(header.index)
        except OutsideLog:
            return None
        offer = SnapshotOffer(header.index, header.term, header.chain_crc, snapshot.size, begin)
        self._known[offer.identity] = _Known(snapshot, offer)
        return offer

    def holds(self, offer: SnapshotOffer) -> bool:
        """Whether its file is there, and the log from its beginning on."""
        known = self._known.get(offer.identity)
        return (
            known is not None
            and known.offer == offer
            and offer.begin.before_index >= self._store.first_index - 1
        )
