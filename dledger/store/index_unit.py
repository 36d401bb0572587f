"""The 32-byte unit that says where an entry lies (Java DLedger's index file).

Unit i is at byte 32 * i of the index's address space: magic i32, pos i64, size i32, index i64,
term i64, big-endian.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

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
        """Position of the byte behind the entry."""
        return self.pos + self.size


def magics(units: bytes) -> bytes:
    """The magic of each of these units: its last byte, which says all. One slice for all."""
    return units[3::UNIT_BYTES]
