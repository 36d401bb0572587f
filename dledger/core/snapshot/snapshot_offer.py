"""What a leader offers to a member that is behind its log's beginning: a snapshot, and a log to be.

A snapshot alone is no log. So that the logs of all members stay equal byte by byte, the receiver's
log begins again where a segment of the leader's begins: the one that holds the last entry in the
snapshot. What lies between is sent as usual, and is in the snapshot as well.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class LogBegin(NamedTuple):
    """Where a log begins: right behind the entry `before_index`, at the position `pos`."""

    before_index: int
    before_term: int
    before_chain: int  # its chainCrc: everything before it is equal where this is
    pos: int


class SnapshotOffer(NamedTuple):
    """One snapshot: its last entry (`index`, `term`, `chain`), the bytes of its file, and where
    the log of a member that takes it begins.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    chain: int
    size: int
    begin: LogBegin

    @property
    def identity(self) -> tuple[int, int, int]:
        """Equal for the same state: what a part of the file is known by."""
        return self.index, self.term, self.chain


# One piece: as much as one push to a peer, so that heartbeats between them are not held up.
PIECE_BYTES = 256 * 1024


class SnapshotSource(Protocol):
    """Knows which snapshots are there to be sent: the store's side of it."""

    @property
    def piece_bytes(self) -> int:
        """How much of a file is sent at once; PIECE_BYTES at most."""
        ...

    def newest(self) -> SnapshotOffer | None:
        """The newest one that can be sent; None without."""
        ...

    def holds(self, offer: SnapshotOffer) -> bool:
        """Whether that one can still be sent."""
        ...


class NoSnapshots:
    """The source of a member whose state is never saved."""

    piece_bytes = PIECE_BYTES

    def newest(self) -> SnapshotOffer | None:
        """None."""
        return None

    def holds(self, offer: SnapshotOffer) -> bool:
        """Never."""
        return False


NO_SNAPSHOTS = NoSnapshots()
