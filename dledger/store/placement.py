"""The positions of new entries, and their bytes. Pure; the leader's hot loop.

Rule of Java DLedger: at least 8 bytes of a segment stay free, so that a blank record can close
it. An entry that would leave less opens the next segment, and the blank covers the rest. The
blank is written together with the entry after it, never earlier: so the log's end is always the
end of its last entry, and equal histories are equal bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import NamedTuple, cast
from zlib import crc32

from dledger.entry import (
    BLANK,
    BLANK_BYTES,
    BLANK_MAGIC,
    CHAINED,
    HEADER,
    HEADER_BYTES,
    Body,
    Magic,
    body_lengths,
    stamped_body,
)
from dledger.entry_run import EntryRun
from dledger.errors import EntryTooLarge
from dledger.store.index_unit import index_units


class Placement(NamedTuple):
    """New entries, and their bytes: one (position, bytes) run for each segment they touch."""

    entries: EntryRun
    runs: list[tuple[int, bytes]]
    index_units: bytes
    end_pos: int
    last_chain: int


class LogEnd(NamedTuple):
    """The end of the log, where the next entry goes."""

    next_index: int
    pos: int
    chain: int


def filler(pos: int, segment_bytes: int) -> bytes:
    """Encode the blank record that closes the segment from `pos` on: 8 bytes, then zeros."""
    return BLANK.pack(BLANK_MAGIC, segment_bytes - pos % segment_bytes)


def segment_end(pos: int, segment_bytes: int) -> int:
    """Return the end of the segment that contains `pos`. No entry ends at a segment's end."""
    return pos - pos % segment_bytes + segment_bytes


def place(
    term: int, magic: int, bodies: Sequence[Body], end: LogEnd, segment_bytes: int, body_limit: int
) -> Placement:
    """Encode adjacent entries; less than 1 us an entry.

    Raises:
        EntryTooLarge: a body is longer than `body_limit`; nothing was changed. The limit is for
            applications: a configuration may fill a segment, and so may a no-op.
    """
    pos, chain = end.pos, end.chain
    if magic != Magic.NORMAL:
        body_limit = segment_bytes - HEADER_BYTES - BLANK_BYTES
    if len(bodies) == 1 and (placed := _place_one(term, magic, bodies, end, segment_bytes)):
        if (size := len(placed.entries.bodies[0])) > body_limit:
            raise EntryTooLarge(size, body_limit)
        return placed
    lengths = body_lengths(bodies)
    if (longest := max(lengths, default=0)) > body_limit:
        raise EntryTooLarge(longest, body_limit)
    sizes = [HEADER_BYTES + length for length in lengths]
    placed_at: list[int] = []
    encoded: list[bytes] = []
    runs: list[tuple[int, bytes]] = []
    parts: list[bytes] = []
    run_pos, at = pos, 0
    while at < len(sizes):
        limit = segment_end(pos, segment_bytes) - BLANK_BYTES
        positions = list(accumulate(sizes[at:], initial=pos))
        count = bisect_right(positions, limit) - 1
        if count <= 0 and pos % segment_bytes:
            parts.append(filler(pos, segment_bytes))
            runs.append((run_pos, b"".join(parts)))
            parts = []
            pos = run_pos = limit + BLANK_BYTES
            continue
        count = max(count, 1)
        pos = positions[count]
        del positions[count:]
        contents = stamped(bodies[at : at + count], positions)
        first = end.next_index + at
        chain = _encode(EntryRun(first, term, magic, positions, contents), chain, parts)
        placed_at += positions
        encoded += contents
        at += count
    runs.append((run_pos, b"".join(parts)))
    entries = EntryRun(end.next_index, term, magic, placed_at, encoded)
    return Placement(entries, runs, index_units(entries), pos, chain)


def _place_one(
    term: int, magic: int, bodies: Sequence[Body], end: LogEnd, segment_bytes: int
) -> Placement | None:
    """Place one entry that fits into the segment; return None if it does not fit.

    It takes half the time of `place`, which counts when appends come one at a time.
    """
    index, pos, chain = end
    contents = stamped(bodies, (pos,))
    body = contents[0]
    size = HEADER_BYTES + len(body)
    if pos % segment_bytes + size + BLANK_BYTES > segment_bytes:
        return None
    body_sum = crc32(body) or 1
    chain = crc32(CHAINED.pack(magic, size, index, term, pos, 0, body_sum), chain) or 1
    header = HEADER.pack(magic, size, index, term, pos, 0, chain, body_sum, len(body))
    entries = EntryRun(index, term, magic, [pos], contents)
    return Placement(entries, [(pos, header + body)], index_units(entries), pos + size, chain)


def stamped(bodies: Sequence[Body], positions: Sequence[int]) -> list[bytes]:
    """Return the bytes of bodies whose entries are at `positions`."""
    if set(map(type, bodies)) <= {bytes}:
        return list(cast("Sequence[bytes]", bodies))
    return list(map(stamped_body, bodies, positions))


def _encode(run: EntryRun, chain: int, parts: list[bytes]) -> int:
    """Add the bytes of these entries to `parts`; return the last chain sum.

    It works column by column, so that `map` runs the loops; only the chain needs a Python loop,
    because each sum depends on the one before.
    """
    bodies, positions = run.bodies, run.positions
    lengths = list(map(len, bodies))
    sizes = [HEADER_BYTES + length for length in lengths]
    body_sums = [body_sum or 1 for body_sum in map(crc32, bodies)]
    indexes = range(run.first, run.first + len(bodies))
    magic, term, channel = repeat(run.magic), repeat(run.term), repeat(0)
    chains: list[int] = []
    add = chains.append
    for head in map(CHAINED.pack, magic, sizes, indexes, term, positions, channel, body_sums):
        chain = crc32(head, chain) or 1
        add(chain)
    encoded = [b""] * (2 * len(bodies))
    encoded[::2] = map(
        HEADER.pack, magic, sizes, indexes, term, positions, channel, chains, body_sums, lengths
    )
    encoded[1::2] = bodies
    parts += encoded
    return chain
