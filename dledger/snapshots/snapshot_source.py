"""The snapshots of this node that can be sent to members that are behind."""

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

    Made before the replica, as its SnapshotSource. The parts that write, receive and remove
    snapshots keep it up to date.

    Attributes:
        last: the newest snapshot. It may be older than the log, and then useless to other members.
    """

    def __init__(self, store: LogStore, piece_bytes: int = PIECE_BYTES) -> None:
        self.piece_bytes = piece_bytes
        self._store = store
        self._known: dict[Identity, _Known] = {}
        self.last: Snapshot | None = None

    def add(self, snapshot: Snapshot) -> None:
        if self.last is None or self.last.header.index <= snapshot.header.index:
            self.last = snapshot

    def keep(self, indexes: Collection[int]) -> None:
        """Forget all snapshots except those of these entries."""
        self._known = {at: known for at, known in self._known.items() if at[0] in indexes}

    def replace(self, last: Snapshot | None) -> None:
        """Replace the newest snapshot, which is broken, by the newest of the others."""
        self._known.clear()
        self.last = last

    def find(self, offer: SnapshotOffer) -> Snapshot | None:
        """Return the snapshot that was offered, if it still exists."""
        known = self._known.get(offer.identity)
        return known.snapshot if known is not None else None

    # --- as the core's source -----------------------------------------------------------------

    def newest(self) -> SnapshotOffer | None:
        snapshot = self.last
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
        offer = SnapshotOffer(
            header.index, header.term, header.chain_crc, snapshot.size_bytes, begin
        )
        self._known[offer.identity] = _Known(snapshot, offer)
        return offer

    def holds(self, offer: SnapshotOffer) -> bool:
        known = self._known.get(offer.identity)
        return (
            known is not None
            and known.offer == offer
            and offer.begin.before_index >= self._store.first_index - 1
        )
