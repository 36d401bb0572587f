"""The 32-byte unit that says where an entry lies (Java DLedger's index file).

Unit i is at byte 32 * i of the index's address space: magic i32, pos i64, size i32, index i64,
term i64, big-endian.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from dledger.entry import HEADER_BYTES
from dledger.entry_run import EntryRun

UNIT = struct.Struct(">iqiqq")
UNIT_BYTES = UNIT.size  # 32


class IndexUnit(NamedTuple):
    """One unit, in file order."""

    magic: int
    pos: int
    size: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int

    @property
    def end(self) -> int:
        """Position of the byte after the entry."""
        return self.pos + self.size


def magics(units: bytes) -> bytes:
    """Return the magic of each of these units: its last byte suffices. One slice for all."""
    return units[3::UNIT_BYTES]


def index_units(run: EntryRun) -> bytes:
    """Encode the units of these entries.

    The units differ in three fields. Each field is packed for all entries at once and then copied
    in byte by byte, which takes half the time of packing unit by unit.
    """
    count = len(run.bodies)
    if count == 1:
        size = HEADER_BYTES + len(run.bodies[0])
        return UNIT.pack(run.magic, run.positions[0], size, run.first, run.term)
    units = bytearray(UNIT.pack(run.magic, 0, 0, 0, run.term) * count)
    positions = struct.pack(f">{count}q", *run.positions)
    sizes = struct.pack(f">{count}i", *[HEADER_BYTES + size for size in map(len, run.bodies)])
    indexes = struct.pack(f">{count}q", *range(run.first, run.first + count))
    for byte in range(8):
        units[4 + byte :: UNIT_BYTES] = positions[byte::8]
        units[16 + byte :: UNIT_BYTES] = indexes[byte::8]
    for byte in range(4):
        units[12 + byte :: UNIT_BYTES] = sizes[byte::4]
    return bytes(units)
