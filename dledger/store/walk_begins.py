"""The places in a log from which the next recovery may begin to walk. Pure.

The first entry of every segment is one, and within a segment one entry in so many bytes. All are
remembered until the log is durable, with its index, and committed up to them; then the record
names the last such place, and a start checks again only what lies behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dledger.store.index_unit import UNIT_BYTES


class WalkBegin(NamedTuple):
    """Where an entry lies, and its index. The first one of a segment lies where that begins."""

    pos: int
    first_index: int


class WalkBegins:
    """The places, in order; never empty. The first one is as far as the record may go.

    Args:
        segment_bytes: length of the data files.
        step_bytes: the distance of two places, but for that of an entry more.
        begins: what recovery found.
    """

    __slots__ = ("_begins", "_next_pos", "_segment_bytes", "_step_bytes")

    def __init__(self, segment_bytes: int, step_bytes: int, begins: Iterable[WalkBegin]) -> None:
        self._segment_bytes = segment_bytes
        self._step_bytes = step_bytes
        self._begins = list(begins)
        self._next_pos = 0
        self._find_next()

    @property
    def first(self) -> WalkBegin:
        """The place from which a recovery may begin now."""
        return self._begins[0]

    def note(self, units: bytes, first: int, count: int, end_pos: int) -> None:
        """Entries were written: `count` from index `first`, with these index units."""
        newest = self._begins[-1]
        if first < newest.first_index:  # the first entry of a log that began behind it
            self._begins[-1] = WalkBegin(newest.pos, first)
        if end_pos <= self._next_pos:
            return
        for at in range(count):
            pos = int.from_bytes(units[at * UNIT_BYTES + 4 : at * UNIT_BYTES + 12], "big")
            if pos >= self._next_pos:
                self._begins.append(WalkBegin(pos, first + at))
                self._find_next()

    def cut_after(self, index: int) -> None:
        """The log was cut behind entry `index`."""
        begins = self._begins
        while len(begins) > 1 and begins[-1].first_index > index:
            begins.pop()
        self._find_next()

    def drop_before(self, pos: int) -> None:
        """The log begins at the segment at `pos` now."""
        begins = self._begins
        while len(begins) > 1 and begins[0].pos < pos:
            begins.pop(0)

    def restart(self, begin: WalkBegin) -> None:
        """The log is empty and begins there."""
        self._begins = [begin]
        self._find_next()

    def settle(self, index: int) -> WalkBegin:
        """No entry up to `index` will change any more; the place from which to begin then."""
        begins = self._begins
        while len(begins) > 1 and begins[1].first_index <= index:
            begins.pop(0)
        return begins[0]

    def _find_next(self) -> None:
        pos = self._begins[-1].pos
        segment_end = pos - pos % self._segment_bytes + self._segment_bytes
        self._next_pos = min(segment_end, pos + self._step_bytes)
