"""Walks the records of a log, from bytes, and checks each one. Pure.

Recovery, the offline scan and the tests share these checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple
from zlib import crc32

from dledger.core.ledger_view import TermRun
from dledger.entry import (
    BEFORE_FIRST_INDEX,
    BLANK,
    BLANK_BYTES,
    BLANK_MAGIC,
    HEADER,
    HEADER_BYTES,
    NO_TERM,
    Header,
)
from dledger.store.batch import MAX_ENTRY_BYTES

# A window holds the largest entry wherever it begins in the first half.
WINDOW_BYTES = 2 * MAX_ENTRY_BYTES
# The unit in which a disk keeps or loses unsynced data.
SECTOR_BYTES = 512
ALL_UNCHECKED = 2**63 - 1

RawHeader = tuple[int, int, int, int, int, int, int, int, int]
_MAGIC_BYTES = re.compile(rb"\0\0\0[\1-\3]")


class Stop(Enum):
    """Why a walk ended."""

    MORE = auto()  # the window ends inside a record
    SEGMENT_END = auto()  # a blank record, up to the end of the segment
    ZERO = auto()  # nothing is written here
    BROKEN = auto()  # something other than the next entry is written here


class Findings(NamedTuple):
    """The results of the checks of one record; a check that could not be made counts as failed."""

    header_ok: bool = False  # magic, sizes and position can be an entry's
    fits: bool = False  # it ends within its segment, and leaves room for a blank
    body_ok: bool = False  # the body's CRC
    chain_ok: bool = False  # the chain's CRC
    order_ok: bool = False  # the index follows, and the term is not smaller

    @property
    def problem(self) -> str:
        """The first failed check, in words."""
        if not self.header_ok:
            return "no header of an entry"
        if not self.fits:
            return "the entry does not fit into its segment"
        if not self.order_ok:
            return "the index or the term does not follow the entry before"
        if not self.body_ok:
            return "the body does not match its CRC"
        return "the chain CRC does not follow the entry before"


class LogWalker:
    """Checks one record after the other.

    Args:
        segment_bytes: length of the files.
        next_index: the index that the next entry must have; None takes it from the first one.
        term: term of the entry before (NO_TERM: none).
        chain: chainCrc of the entry before; None when it is not known.
        unchecked_through: the sums of entries up to here are not checked.
    """

    def __init__(
        self,
        segment_bytes: int,
        *,
        next_index: int | None = None,
        term: int = NO_TERM,
        chain: int | None = None,
        unchecked_through: int = BEFORE_FIRST_INDEX,
    ) -> None:
        self.segment_bytes = segment_bytes
        self.next_index = next_index
        self.term = term
        self.chain = chain
        self.unchecked_through = unchecked_through
        self.pos = 0
        self.stop = Stop.MORE
        self.findings = Findings()
        self.runs: list[TermRun] = []

    def walk(self, window: bytes, pos: int) -> list[RawHeader]:
        """Return the intact entries from `pos` on; `window` holds the bytes from `pos`.

        The window ends at the segment's end at the latest. Afterwards `pos` is where the walk
        ended and `stop` says why.
        """
        segment_end = pos - pos % self.segment_bytes + self.segment_bytes
        limit = segment_end - BLANK_BYTES
        base, end, at = pos, len(window), 0
        view = memoryview(window)
        unpack = HEADER.unpack_from
        found: list[RawHeader] = []
        index, term, chain = self.next_index, self.term, self.chain
        unchecked = self.unchecked_through
        self.stop = Stop.MORE
        while end - at >= HEADER_BYTES:
            header: RawHeader = unpack(window, at)
            magic, size, entry_index, entry_term, entry_pos, _, entry_chain, _, body_size = header
            next_at = at + size
            if (
                entry_pos != base + at
                or not 1 <= magic <= 3
                or size != HEADER_BYTES + body_size
                or size > MAX_ENTRY_BYTES
                or entry_index != index
                or entry_term < term
                or entry_term < 0
                or entry_pos + size > limit
            ):
                if index is None and 1 <= magic <= 3 and entry_index >= 0:
                    index = entry_index  # the first entry kept
                    continue
                break
            if next_at > end:
                break
            if entry_index > unchecked and not (
                _body_matches(view, at, header) and _chain_matches(view, at, header, chain)
            ):
                break
            if entry_term != term or not self.runs:
                self.runs.append(TermRun(entry_term, entry_index))
                term = entry_term
            found.append(header)
            chain = entry_chain
            index = entry_index + 1
            at = next_at
        self.next_index, self.term, self.chain = index, term, chain
        self.pos = base + at
        self._classify(view, at, limit)
        return found

    def _classify(self, view: memoryview, at: int, limit: int) -> None:
        """Set `stop` to the reason why the walk ended at `at`."""
        left = len(view) - at
        if left < BLANK_BYTES:
            self.stop = Stop.SEGMENT_END if self.pos == limit + BLANK_BYTES else Stop.MORE
            return
        magic, size = BLANK.unpack_from(view, at)
        if magic == 0 and size == 0:
            self.stop = Stop.ZERO
            self.findings = Findings()
            return
        if magic == BLANK_MAGIC:
            whole = size == limit + BLANK_BYTES - self.pos
            self.stop = Stop.SEGMENT_END if whole else Stop.BROKEN
            self.findings = Findings()
            return
        if left < HEADER_BYTES and self.pos + left < limit + BLANK_BYTES:
            self.stop = Stop.MORE
            return
        self.stop = Stop.BROKEN
        self.findings = Findings()
        if left < HEADER_BYTES:
            return
        header = Header._make(HEADER.unpack_from(view, at))
        if not header.well_formed or header.pos != self.pos:
            return
        fits = header.pos + header.size <= limit
        order_ok = self.next_index in {None, header.index} and header.term >= self.term
        if fits and header.size > left:
            if order_ok:
                self.stop = Stop.MORE
            self.findings = Findings(True, fits, order_ok=order_ok)
            return
        unchecked = header.index <= self.unchecked_through
        self.findings = Findings(
            True,
            fits,
            fits and (unchecked or _body_matches(view, at, header)),
            fits and (unchecked or _chain_matches(view, at, header, self.chain)),
            order_ok,
        )


def _body_matches(view: memoryview, at: int, header: RawHeader) -> bool:
    body_sum = header[7]
    if not body_sum:
        return True
    return (crc32(view[at + HEADER_BYTES : at + header[1]]) or 1) == body_sum


def _chain_matches(view: memoryview, at: int, header: RawHeader, previous: int | None) -> bool:
    chain = header[6]
    if not chain and not header[8] and (previous or header[2] == 0):
        # An entry without sums and body after an entry of ours was not written by Java: it is a
        # write whose last 12 header bytes did not reach the disk and read as zero.
        return False
    if not chain or previous is None:
        return True
    return (crc32(view[at + 40 : at + 44], crc32(view[at : at + 36], previous)) or 1) == chain


def prefix_blank(first_bytes: bytes, segment_bytes: int) -> int:
    """Return the length of the blank that a cut of the log's head left in the first file, or 0."""
    if len(first_bytes) < BLANK_BYTES:
        return 0
    magic, size = BLANK.unpack_from(first_bytes)
    return int(size) if magic == BLANK_MAGIC and BLANK_BYTES <= size <= segment_bytes else 0


def unfinished_write(content: bytes, pos: int, segment_bytes: int) -> bool:
    """Return whether the record at `pos` looks like a write that a crash interrupted.

    All bytes after the log's end are durably zero before they are written. So the missing part of
    an interrupted write reads as zeros: lost sectors, or the rest of a torn one. The zeros are at
    the end of a sector's share of the record, or in place of the magic.

    `content` holds the bytes from `pos` on, at least up to the end of the record.
    """
    if not any(content[:4]):
        return True
    extent = HEADER_BYTES
    if len(content) >= HEADER_BYTES:
        header = Header._make(HEADER.unpack_from(content))
        if header.well_formed and header.pos == pos:
            # The size of an empty body is rightly zero: look at the CRC before it.
            extent = header.size if header.body_size else HEADER_BYTES - 4
    extent = min(extent, len(content))
    sector_end = SECTOR_BYTES - pos % segment_bytes % SECTOR_BYTES
    if sector_end <= 3:  # only the high bytes of the magic, which are rightly zero
        sector_end += SECTOR_BYTES
    while sector_end < extent:
        if not content[sector_end - 1]:
            return True
        sector_end += SECTOR_BYTES
    return not content[extent - 1]


def intact_entries(
    window: bytes, pos: int, segment_bytes: int, after_index: int, term: int
) -> Iterator[Header]:
    """Yield the entries anywhere in `window` (the bytes at `pos`) that could follow the log.

    An entry is recognized by the position in its header and by its body's CRC.
    """
    limit = pos - pos % segment_bytes + segment_bytes - BLANK_BYTES
    view = memoryview(window)
    for match in _MAGIC_BYTES.finditer(window):
        at = match.start()
        if len(window) - at < HEADER_BYTES:
            return
        raw: RawHeader = HEADER.unpack_from(window, at)
        if raw[4] != pos + at:
            continue
        header = Header._make(raw)
        if (
            header.well_formed
            and header.index > after_index
            and header.term >= term
            and header.pos + header.size <= limit
            and at + header.size <= len(window)
            and _body_matches(view, at, raw)
        ):
            yield header
