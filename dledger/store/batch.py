"""Checks of a run of entries, from a peer or from the disk. Pure: bytes in, facts or an error out.

A leader sends the bytes of its disk: whole adjacent entries of one segment. The follower uses them
only after it has checked every header, both sums and the order. When each sum is checked:

* before a follower writes, counts or applies an entry that it was sent: its body's sum and its
  chain sum (`verify_batch`, called by `PushCheck` as soon as a push arrives);
* each time entries are read back from the disk, before they are applied or sent: both sums
  (`check_run`). Entries that are still in memory were checked when they came, or are the leader's
  own, and are not checked again;
* by the scrubber, now and again: both sums of every committed entry on the disk (`verify_batch`).
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn
from zlib import crc32

from dledger.core.ledger_view import TermRun
from dledger.entry import CHAINED, HEADER, HEADER_BYTES, LARGEST_BODY_BYTES
from dledger.entry_run import EntryRun
from dledger.errors import BatchInvalid, ChainBroken
from dledger.store.index_unit import index_units

MAX_ENTRY_BYTES = HEADER_BYTES + LARGEST_BODY_BYTES
_FIRST_MAGIC, _LAST_MAGIC = 1, 3


class BatchFacts(NamedTuple):
    """The result of `verify_batch`: the bytes need not be parsed again."""

    first_index: int
    last_index: int
    term_runs: tuple[TermRun, ...]
    first_pos: int
    end_pos: int
    last_chain: int
    index_units: bytes
    entries: tuple[EntryRun, ...]


def _refuse(index: int, problem: str) -> NoReturn:
    raise BatchInvalid(f"entry {index} of a batch: {problem}")


def _judge_header(header: tuple[int, ...], index: int, last_term: int, pos: int, room: int) -> None:
    """Raise BatchInvalid if the header is wrong."""
    magic, size, found, term, found_pos, _, _, _, body_size = header
    if not _FIRST_MAGIC <= magic <= _LAST_MAGIC:
        _refuse(index, f"unknown magic {magic}")
    if size != HEADER_BYTES + body_size or size > MAX_ENTRY_BYTES:
        _refuse(index, f"size {size} with a body of {body_size} bytes")
    if size > room:
        _refuse(index, f"{size} bytes, of which only {room} arrived")
    if found != index:
        _refuse(index, f"found index {found}")
    if term < last_term or term < 0:
        _refuse(index, f"term {term} after term {last_term}")
    if found_pos != pos:
        _refuse(index, f"position {found_pos} instead of {pos}")


def verify_batch(
    raw: bytes, first_index: int, previous_chain: int | None, previous_term: int
) -> BatchFacts:
    """Check a run of whole adjacent entries; about 2 us an entry.

    Args:
        raw: the entries, as they lie in the leader's segment.
        first_index: the index that the first entry must have.
        previous_chain: chainCrc stored in the entry before (0 at the log's start and after an
            entry of Java), or None if it is not known: then the first entry's chain is not
            checked.
        previous_term: term of the entry before; no term may be smaller.

    A stored sum of zero is not checked (Java wrote the entry).

    Raises:
        BatchInvalid: with the first thing that is wrong.
    """
    end = len(raw)
    if end < HEADER_BYTES:
        _refuse(first_index, f"{end} bytes are less than a header")
    unpack, chained = HEADER.unpack_from, CHAINED.pack
    columns: list[tuple[int, int, int, list[int], list[bytes]]] = []  # of each EntryRun
    runs: list[TermRun] = []
    index, last_term, run_term = first_index, previous_term, -1
    run_magic: int | None = None  # differs from the magic of every entry, even a broken one
    first_pos = pos = unpack(raw, 0)[4]
    if first_pos < 0:
        _refuse(first_index, f"position {first_pos}")
    chain_known = previous_chain is not None
    last_chain = previous_chain or 0
    at, header_end = 0, HEADER_BYTES
    while at < end:
        if header_end > end:
            _refuse(index, f"{end - at} bytes are less than a header")
        header = unpack(raw, at)
        magic, size, found, term, found_pos, channel, chain, body_sum, body_size = header
        next_at = at + size
        if (
            found != index
            or found_pos != pos
            or size != HEADER_BYTES + body_size
            or next_at > end
            or size > MAX_ENTRY_BYTES
        ):
            _judge_header(header, index, last_term, pos, end - at)
        if term != run_term or magic != run_magic:
            _judge_header(header, index, last_term, pos, end - at)
            if term != run_term:
                runs.append(TermRun(term, index))
            run_term = last_term = term
            run_magic = magic
            positions: list[int] = []
            bodies: list[bytes] = []
            columns.append((index, term, magic, positions, bodies))
            add_position, add_body = positions.append, bodies.append
        body = raw[header_end:next_at]
        if body_sum and (crc32(body) or 1) != body_sum:
            _refuse(index, "the body does not match its CRC")
        if (
            chain
            and chain_known
            and (crc32(chained(magic, size, index, term, pos, channel, body_sum), last_chain) or 1)
            != chain
        ):
            raise ChainBroken(index)
        add_position(pos)
        add_body(body)
        last_chain, chain_known = chain, True
        index += 1
        pos += size
        at = next_at
        header_end = at + HEADER_BYTES
    entries = [EntryRun(*each) for each in columns]
    units = b"".join(map(index_units, entries))
    return BatchFacts(
        first_index, index - 1, tuple(runs), first_pos, pos, last_chain, units, tuple(entries)
    )


def check_run(
    raw: bytes, first_index: int, previous_chain: int | None, unchecked_through: int
) -> int:
    """Check entries that are read back from a log; return the last chainCrc.

    Computes both sums of every entry after `unchecked_through` again (a stored zero is not
    checked), about 1 us an entry. With `previous_chain`, the chainCrc of the entry before, the sums
    cover every byte; None if it is not known.

    Raises:
        BatchInvalid: with the first thing that is wrong.
    """
    view, unpack = memoryview(raw), HEADER.unpack_from
    at, end, index, stored, chain = 0, len(raw), first_index, 0, previous_chain
    while at < end:
        if end - at < HEADER_BYTES:
            _refuse(index, f"{end - at} bytes are less than a header")
        _, size, found, _, _, _, stored, body_sum, body_size = unpack(raw, at)
        next_at = at + size
        if found != index or size != HEADER_BYTES + body_size or next_at > end:
            _refuse(index, f"index {found} and {size} bytes instead of the entry that was written")
        if index > unchecked_through:
            if body_sum and (crc32(view[at + HEADER_BYTES : next_at]) or 1) != body_sum:
                _refuse(index, "the body does not match its CRC")
            if (
                stored
                and chain is not None
                and (crc32(view[at + 40 : at + 44], crc32(view[at : at + 36], chain)) or 1)
                != stored
            ):
                _refuse(index, "the header does not match the chain CRC")
        chain = stored
        index += 1
        at = next_at
    return stored
