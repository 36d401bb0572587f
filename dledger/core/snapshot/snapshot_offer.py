"""A leader's offer to a member that lacks discarded entries: a snapshot, and where its log begins.

So that the logs of all members stay equal byte by byte, the receiver's log begins where a segment
of the leader's log begins: the segment that holds the last entry in the snapshot. The entries from
there to the last one in the snapshot are sent as usual, and are in the snapshot as well.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class LogBegin(NamedTuple):
    """Where a log begins: right behind the entry `before_index`, at the position `pos`."""

    before_index: int
    before_term: int
    before_chain: int  # its chainCrc: nodes on which it is equal have equal entries up to there
    pos: int


class SnapshotOffer(NamedTuple):
    """One snapshot: its last entry (`index`, `term`, `chain`), the size of its file in bytes, and
    where the log of a member that installs it begins.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    chain: int
    size: int
    begin: LogBegin

    @property
    def identity(self) -> tuple[int, int, int]:
        """The identity of the snapshot's state; pieces of its file carry it."""
        return self.index, self.term, self.chain


# The size of a piece. It equals that of a push to a peer, so that pieces do not delay heartbeats.
PIECE_BYTES = 256 * 1024


class SnapshotSource(Protocol):
    """Knows the snapshots that can be sent. The node implements it."""

    @property
    def piece_bytes(self) -> int:
        """The size of the pieces of a file; PIECE_BYTES at most."""

    def newest(self) -> SnapshotOffer | None:
        """Return the newest snapshot that can be sent; None if there is none."""

    def holds(self, offer: SnapshotOffer) -> bool: ...


class NoSnapshots:
    """The source of a member that saves no snapshots."""

    piece_bytes = PIECE_BYTES

    def newest(self) -> SnapshotOffer | None:
        return None

    def holds(self, offer: SnapshotOffer) -> bool:
        return False


NO_SNAPSHOTS = NoSnapshots()
