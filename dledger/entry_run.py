"""Adjacent entries of one kind, in columns; Entry objects are made at the first access."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import eq
from typing import overload

from dledger.entry import HEADER_BYTES, PLACE, Entry


class EntryRun(Sequence[Entry]):
    """Adjacent entries of one term and one magic.

    A state machine sees a sequence of Entry like any other. An Entry object costs as much time as
    the checksums of an entry, so the objects are made at the first access: a machine that only
    counts, or reads the columns, does not pay for them.

    Attributes:
        first: index of the first entry.
        term: of all of them.
        magic: of all of them.
        positions: each entry's position in the log's address space, ascending.
        bodies: each entry's body.
        last: index of the last entry.
    """

    __slots__ = ("_entries", "bodies", "first", "last", "magic", "positions", "term")

    def __init__(
        self, first: int, term: int, magic: int, positions: list[int], bodies: list[bytes]
    ) -> None:
        self.first = first
        self.term = term
        self.magic = magic
        self.positions = positions
        self.bodies = bodies
        self.last = first + len(bodies) - 1
        self._entries: list[Entry] | None = None

    @property
    def end_pos(self) -> int:
        """Position of the byte after the last entry."""
        return self.positions[-1] + HEADER_BYTES + len(self.bodies[-1])

    @property
    def log_bytes(self) -> int:
        return self.end_pos - self.positions[0]

    def part(self, begin: int, end: int) -> EntryRun:
        """Return the entries at places `begin` to `end` of the run, without that at `end`."""
        if begin == 0 and end >= len(self.bodies):
            return self
        positions, bodies = self.positions[begin:end], self.bodies[begin:end]
        return EntryRun(self.first + begin, self.term, self.magic, positions, bodies)

    def __len__(self) -> int:
        return len(self.bodies)

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        return self._made()[at]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._made())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EntryRun | list):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    def _made(self) -> list[Entry]:
        entries = self._entries
        if entries is None:
            rows = zip(
                range(self.first, self.first + len(self.bodies)),
                repeat(self.term),
                self.positions,
                repeat(self.magic),
                self.bodies,
                strict=False,  # `repeat` has no end
            )
            # A third of the time that Entry(...) takes.
            entries = self._entries = list(map(tuple.__new__, repeat(Entry), rows))
        return entries


def joined(runs: Sequence[EntryRun]) -> EntryRun:
    if len(runs) == 1:
        return runs[0]
    positions: list[int] = []
    bodies: list[bytes] = []
    for run in runs:
        positions += run.positions
        bodies += run.bodies
    return EntryRun(runs[0].first, runs[0].term, runs[0].magic, positions, bodies)


def decode_run(buffer: bytes) -> EntryRun:
    """Decode the first run in whole, adjacent, already verified entries."""
    magic, _, first, term, _ = PLACE.unpack_from(buffer)
    positions: list[int] = []
    bodies: list[bytes] = []
    unpack, at, end = PLACE.unpack_from, 0, len(buffer)
    while at < end:
        found_magic, size, _, found_term, pos = unpack(buffer, at)
        if found_term != term or found_magic != magic:
            break
        positions.append(pos)
        bodies.append(buffer[at + HEADER_BYTES : at + size])
        at += size
    return EntryRun(first, term, magic, positions, bodies)
