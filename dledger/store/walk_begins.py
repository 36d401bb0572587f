"""The places in a log from which the next recovery may begin to walk. Pure.

The first entry of every segment is such a place, and within a segment one entry every `step_bytes`.
A place is kept in memory until the log up to it is committed and, with its index, durable. The
record then names the last such place, and a start checks only the entries after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dledger.store.index_unit import UNIT_BYTES


class WalkBegin(NamedTuple):
    """A position and the entry there. A segment's first entry has the segment's position."""

    pos: int
    first_index: int


class WalkBegins:
    """The places, in order; never empty. The first one is the last that the record may name.

    Args:
        segment_bytes: length of the data files.
        step_bytes: the least distance of two places within a segment.
        begins: the places that recovery found.
    """

    __slots__ = ("_begins", "_next_pos", "_segment_bytes", "_step_bytes")

    def __init__(self, segment_bytes: int, step_bytes: int, begins: Iterable[WalkBegin]) -> None:
        self._segment_bytes = segment_bytes
        self._step_bytes = step_bytes
        self._begins = list(begins)
        self._next_pos = 0
        self._find_next()

    def note(self, units: bytes, first: int, count: int, end_pos: int) -> None:
        """Note that `count` entries from index `first` were written, with these index units."""
        newest = self._begins[-1]
        if first < newest.first_index:  # the log's first entry, beyond that place
            self._begins[-1] = WalkBegin(newest.pos, first)
        if end_pos <= self._next_pos:
            return
        for at in range(count):
            pos = int.from_bytes(units[at * UNIT_BYTES + 4 : at * UNIT_BYTES + 12], "big")
            if pos >= self._next_pos:
                self._begins.append(WalkBegin(pos, first + at))
                self._find_next()

    def cut_after(self, index: int) -> None:
        """Note that the log was cut after entry `index`."""
        begins = self._begins
        while len(begins) > 1 and begins[-1].first_index > index:
            begins.pop()
        self._find_next()

    def drop_before(self, pos: int) -> None:
        """Note that the log begins at the segment at `pos` now."""
        begins = self._begins
        while len(begins) > 1 and begins[0].pos < pos:
            begins.pop(0)

    def restart(self, begin: WalkBegin) -> None:
        """Note that the log is empty and begins at `begin`."""
        self._begins = [begin]
        self._find_next()

    def settle(self, index: int) -> WalkBegin:
        """Note that entries up to `index` are final; return the place to begin from now on."""
        begins = self._begins
        while len(begins) > 1 and begins[1].first_index <= index:
            begins.pop(0)
        return begins[0]

    def _find_next(self) -> None:
        pos = self._begins[-1].pos
        segment_end = pos - pos % self._segment_bytes + self._segment_bytes
        self._next_pos = min(segment_end, pos + self._step_bytes)
