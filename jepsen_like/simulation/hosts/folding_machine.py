"""The state machine of simulated members: a digest of all entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from zlib import crc32

from dledger.declared_error import DeclaredError
from dledger.entry import Entry
from jepsen_like.simulation.hosts.group_book import GroupBook

_STATE = Struct(">qqI")
# A state of some size, so that a snapshot goes in several pieces.
PADDING_BYTES = 3_000


class MachineBroke(DeclaredError):
    """The application's own code failed, as the simulation asked for."""

    problem: str


class FoldingMachine:
    """Adds every entry to a digest, and reports it to the group's book.

    Args:
        member: its member's name.
        book: of the group.
        is_alive: whether its process still runs; a killed one reports nothing.

    Attributes:
        index: the last entry in the digest.
        breaks: whether it raises an error at the next entry.
        installs: how many snapshots it restored.
    """

    snapshot_format = "folding/1"

    def __init__(self, member: str, book: GroupBook, is_alive: Callable[[], bool]) -> None:
        self.index = -1
        self.count = 0
        self.digest = 0
        self.breaks = False
        self.installs = 0
        self._member = member
        self._book = book
        self._is_alive = is_alive

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """As in StateMachine; the result is how many entries there are."""
        results = []
        for entry in entries:
            if self.breaks:
                raise MachineBroke("the application failed")
            self.digest = crc32(entry.body, crc32(entry.index.to_bytes(8, "big"), self.digest))
            self.index = entry.index
            self.count += 1
            if self._is_alive():
                self._book.apply(self._member, entry.index, entry.body, self.digest)
            results.append(self.count)
        return results

    def snapshot(self) -> Iterable[bytes]:
        """As in SnapshottingMachine."""
        state = _STATE.pack(self.index, self.count, self.digest)
        return iter([state, *[state[:1] * PADDING_BYTES] * 3])

    def restore(self, chunks: Iterator[bytes]) -> None:
        """As in SnapshottingMachine."""
        self.index, self.count, self.digest = _STATE.unpack(b"".join(chunks)[: _STATE.size])
        self.installs += 1
        if self._is_alive():
            self._book.restored(self._member, self.index, self.digest)
