"""Where new entries go, and their bytes. Pure; the leader's hot loop.

Rule of Java DLedger: at least 8 bytes of a segment stay free, so that a blank record can close
it. An entry that would leave less opens the next segment, and the blank covers what is left. The
blank is written together with the entry behind it, never earlier: so the log's end is always the
end of its last entry, and equal histories are equal bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from dledger.entry import (
    BLANK,
    BLANK_BYTES,
    BLANK_MAGIC,
    HEADER,
    HEADER_BYTES,
    STAMP_BYTES,
    Body,
    Entry,
    Magic,
    PositionedBody,
)
from dledger.errors import EntryTooLarge
from dledger.store.index_unit import UNIT

# What a chain sum covers: the header up to the sums, and the body's sum.
_CHAINED = struct.Struct(">iiqqqiI")
_STAMP = struct.Struct(">q")


class Placement(NamedTuple):
    """New entries, and their bytes: one (position, bytes) run for each segment they touch."""

    entries: list[Entry]
    runs: list[tuple[int, bytes]]
    index_units: bytes
    end_pos: int
    last_chain: int


class LogEnd(NamedTuple):
    """Where the next entry goes."""

    next_index: int
    pos: int
    chain: int


def filler(pos: int, segment_bytes: int) -> bytes:
    """The blank record that closes the segment behind `pos`: 8 bytes, the rest is zero already."""
    return BLANK.pack(BLANK_MAGIC, segment_bytes - pos % segment_bytes)


def segment_end(pos: int, segment_bytes: int) -> int:
    """End of the segment that an entry ending at `pos` lies in, or begins in if there is none."""
    return pos - pos % segment_bytes + segment_bytes


def place(
    term: int, magic: int, bodies: Sequence[Body], end: LogEnd, segment_bytes: int, body_limit: int
) -> Placement:
    """Encode entries one behind the other; about 2 us an entry.

    Raises:
        EntryTooLarge: a body is longer than `body_limit`; nothing has happened then. The limit is
            for applications: a configuration may fill a segment.
    """
    index, pos, chain = end
    runs: list[tuple[int, bytes]] = []
    parts: list[bytes] = []
    entries: list[Entry] = []
    add, add_entry = parts.append, entries.append
    make = tuple.__new__  # a third of the time that Entry(...) takes
    chained_pack, header_pack = _CHAINED.pack, HEADER.pack
    if magic == Magic.CONFIGURATION:
        body_limit = segment_bytes - HEADER_BYTES - BLANK_BYTES
    size_limit = HEADER_BYTES + body_limit
    run_pos = pos
    limit = segment_end(pos, segment_bytes) - BLANK_BYTES
    for body in bodies:
        stamped = type(body) is PositionedBody
        if stamped:
            size = len(body.head) + STAMP_BYTES + len(body.tail) + HEADER_BYTES  # type: ignore[union-attr]
        else:
            size = len(body) + HEADER_BYTES
        if size > size_limit:
            raise EntryTooLarge(size - HEADER_BYTES, body_limit)
        if pos + size > limit:
            if pos % segment_bytes:
                add(filler(pos, segment_bytes))
                runs.append((run_pos, b"".join(parts)))
                parts.clear()
                pos = run_pos = limit + BLANK_BYTES
            limit = pos + segment_bytes - BLANK_BYTES
        if stamped:
            content = b"".join((body.head, _STAMP.pack(pos + HEADER_BYTES), body.tail))  # type: ignore[union-attr]
        else:
            content = body  # type: ignore[assignment]
        body_sum = crc32(content) or 1
        chain = crc32(chained_pack(magic, size, index, term, pos, 0, body_sum), chain) or 1
        add(header_pack(magic, size, index, term, pos, 0, chain, body_sum, size - HEADER_BYTES))
        add(content)
        add_entry(make(Entry, (index, term, pos, magic, content)))
        index += 1
        pos += size
    runs.append((run_pos, b"".join(parts)))
    unit_pack = UNIT.pack
    units = [unit_pack(m, p, HEADER_BYTES + len(b), i, t) for i, t, p, m, b in entries]
    return Placement(entries, runs, b"".join(units), pos, chain)
