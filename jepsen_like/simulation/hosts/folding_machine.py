"""The state machine of simulated members: a digest of all entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from zlib import crc32

import msgpack

from dledger.changes import Changes, Path
from dledger.declared_error import DeclaredError
from dledger.entry import Entry
from dledger.queries import query
from jepsen_like.simulation.hosts.group_book import GroupBook
from jepsen_like.simulation.hosts.told_state import NEWEST, OF_WRITERS, told_by, under, writer_of

_STATE = Struct(">qqI")
# Makes the state so large that a snapshot goes in several pieces.
PADDING_BYTES = 3_000


class MachineBroke(DeclaredError):
    """The application's own code failed, as the simulation asked for."""

    problem: str


class FoldingMachine:
    """Adds every entry to a digest, and reports it to the group's book.

    Args:
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
        self.changes = Changes()
        self._last_of: dict[str, int] = {}  # by writer
        self._member = member
        self._book = book
        self._is_alive = is_alive

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Apply entries; the result of each is the number of entries so far."""
        results = []
        for entry in entries:
            if self.breaks:
                raise MachineBroke("the application failed")
            self.digest = crc32(entry.body, crc32(entry.index.to_bytes(8, "big"), self.digest))
            self.index = entry.index
            self.count += 1
            self._last_of[writer_of(entry.body)] = entry.index
            for path, value in told_by(entry.index, entry.body, self.digest):
                self.changes.set(entry.index, path, value)
            if self._is_alive():
                self._book.apply(self._member, entry.index, entry.body, self.digest)
            results.append(self.count)
        return results

    @query
    def newest(self) -> list[int] | None:
        """Return the last entry in the digest, and the digest."""
        return [self.index, self.digest] if self.index >= 0 else None

    def watched(self, path: Path) -> Iterable[tuple[Path, object]]:
        last_of: Mapping[str, int] = self._last_of
        state: list[tuple[Path, object]] = [
            ((OF_WRITERS, writer), index) for writer, index in last_of.items()
        ]
        if self.index >= 0:
            state.append((NEWEST, [self.index, self.digest]))
        return under(path, state)

    def snapshot(self) -> Iterable[bytes]:
        state = _STATE.pack(self.index, self.count, self.digest)
        return iter([state, *[state[:1] * PADDING_BYTES] * 3, msgpack.packb(self._last_of)])

    def restore(self, chunks: Iterator[bytes]) -> None:
        saved = b"".join(chunks)
        self.index, self.count, self.digest = _STATE.unpack(saved[: _STATE.size])
        self._last_of = msgpack.unpackb(saved[_STATE.size + 3 * PADDING_BYTES :])
        self.installs += 1
        if self._is_alive():
            self._book.restored(self._member, self.index, self.digest)
