"""The bytes of one log entry: 48 bytes of header, big-endian, then the body.

The layout is Java DLedger 0.4's, so its tools read our files and we read theirs. Java leaves both
CRC fields zero and never checks them; we fill them, and read zero as "not checked".

===== ==== ========== ==========================================================================
 off  size field      value
===== ==== ========== ==========================================================================
   0    4  magic      1 normal, 2 no-op, 3 configuration
   4    4  size       48 + body size
   8    8  index      dense, from 0
  16    8  term
  24    8  pos        byte offset of this entry in the log's address space
  32    4  channel    0, reserved
  36    4  chainCrc   CRC-32 over the previous chainCrc, the header's other fields and bodyCrc
  40    4  bodyCrc    CRC-32 of the body
  44    4  bodySize
  48       body
===== ==== ========== ==========================================================================

Equal (index, chainCrc) on two nodes means equal history up to there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from itertools import accumulate, islice
from typing import NamedTuple
from zlib import crc32

from dledger.short_repr import short_repr

HEADER = struct.Struct(">iiqqqiIII")
HEADER_BYTES = HEADER.size  # 48
BLANK = struct.Struct(">ii")
BLANK_BYTES = BLANK.size  # 8
BLANK_MAGIC = -1

# The largest body Java DLedger can encode: its buffer is 4 MiB, header included. No group takes
# more unless it is told to (see StoreConfig).
MAX_BODY_BYTES = 4 * 1024 * 1024 - HEADER_BYTES

# The largest body that is read, from a disk or from a peer. An application that takes payloads of
# 4 MiB from its own clients has this much room for what it adds to them.
LARGEST_BODY_BYTES = 4 * 1024 * 1024 + 64 * 1024

BEFORE_FIRST_INDEX = -1  # the index of "no entry"
NO_TERM = -1  # the term of "no entry"

_STAMP = struct.Struct(">q")
STAMP_BYTES = _STAMP.size
# The fields that the chain covers: the header up to the sums, and the body's sum.
CHAINED = struct.Struct(">iiqqqiI")
_PREFIX = struct.Struct(">iiqqqi")
_SUMS = struct.Struct(">III")
PLACE = struct.Struct(">iiqqq")  # the header up to the position
_BODY_CRC = struct.Struct(">I")


class Magic(IntEnum):
    """The kind of an entry."""

    NORMAL = 1
    NOOP = 2
    CONFIGURATION = 3


_MAGICS = frozenset(int(magic) for magic in Magic)


class Header(NamedTuple):
    """The 48 bytes before a body, in file order."""

    magic: int
    size: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    pos: int
    channel: int
    chain_crc: int
    body_crc: int
    body_size: int

    @property
    def well_formed(self) -> bool:
        """Whether the fields can belong to an entry at all."""
        return (
            self.magic in _MAGICS
            and self.size == HEADER_BYTES + self.body_size
            and 0 <= self.body_size <= LARGEST_BODY_BYTES
            and self.index >= 0
            and self.term >= 0
            and self.pos >= 0
        )


class Entry(NamedTuple):
    """One entry, as a state machine and a reader of the log see it."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    pos: int
    magic: int
    body: bytes

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def body_pos(self) -> int:
        """Byte offset of the body in the log's address space."""
        return self.pos + HEADER_BYTES


class PositionedBody(NamedTuple):
    """A body that holds its own position: head, the body's offset in the log (i64), tail.

    A message broker's record contains its own position in the log, which is known only when the
    leader places the entry. So the store fills it in.
    """

    head: bytes
    tail: bytes

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def placed_bytes(self) -> int:
        """The length in the log."""
        return len(self.head) + STAMP_BYTES + len(self.tail)


class PositionedParts(NamedTuple):
    """A body of adjacent parts, each of which holds its own position: several records in one entry.

    They are replicated, committed and applied together or not at all, and cost one entry.
    """

    parts: tuple[PositionedBody, ...]

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def placed_bytes(self) -> int:
        """The length in the log."""
        return sum(self.lengths())

    def lengths(self) -> list[int]:
        """Return the length of each part in the log."""
        return [len(head) + STAMP_BYTES + len(tail) for head, tail in self.parts]


Body = bytes | PositionedBody | PositionedParts


def body_bytes(body: Body) -> int:
    """Return the length of a body in bytes once it is placed."""
    return len(body) if isinstance(body, bytes) else body.placed_bytes


def body_lengths(bodies: Sequence[Body]) -> list[int]:
    if set(map(type, bodies)) <= {bytes}:
        return list(map(len, bodies))
    return list(map(body_bytes, bodies))


def stamped_body(body: Body, pos: int) -> bytes:
    """Return the bytes of a body whose entry is at `pos`, with its position in it."""
    if isinstance(body, PositionedBody):
        return b"".join((body.head, _STAMP.pack(pos + HEADER_BYTES), body.tail))
    if isinstance(body, PositionedParts):
        positions = accumulate(body.lengths(), initial=pos + HEADER_BYTES)
        pieces = [b""] * (3 * len(body.parts))
        pieces[::3] = [part.head for part in body.parts]
        pieces[1::3] = map(_STAMP.pack, islice(positions, len(body.parts)))
        pieces[2::3] = [part.tail for part in body.parts]
        return b"".join(pieces)
    return body


def encode(
    magic: int, index: int, term: int, pos: int, previous_chain: int, body: Body
) -> tuple[bytes, int]:
    body = stamped_body(body, pos)
    size = len(body)
    body_sum = crc32(body) or 1
    prefix = _PREFIX.pack(magic, HEADER_BYTES + size, index, term, pos, 0)
    chain = crc32(_BODY_CRC.pack(body_sum), crc32(prefix, previous_chain)) or 1
    return b"".join((prefix, _SUMS.pack(chain, body_sum, size), body)), chain


def decode_header(buffer: bytes | bytearray | memoryview, at: int = 0) -> Header:
    """Decode the header at `at`. Fields are not checked; see `Header.well_formed`.

    Raises struct.error when fewer than 48 bytes are left.
    """
    return Header._make(HEADER.unpack_from(buffer, at))


def decode_entries(buffer: bytes) -> list[Entry]:
    """Decode a run of whole, adjacent, already verified entries."""
    entries: list[Entry] = []
    append, unpack, at, end = entries.append, PLACE.unpack_from, 0, len(buffer)
    make = tuple.__new__  # a third of the time that Entry(...) takes
    while at < end:
        magic, size, index, term, pos = unpack(buffer, at)
        append(make(Entry, (index, term, pos, magic, buffer[at + HEADER_BYTES : at + size])))
        at += size
    return entries


def total_bytes(bodies: Sequence[Body]) -> int:
    return sum(map(body_bytes, bodies)) + HEADER_BYTES * len(bodies)
