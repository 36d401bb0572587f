"""The positions of a segment's entries: from the index files, or by going from header to header.

The index files are a hint: fast, but possibly missing or behind after a power cut. A reader uses
them only where the data agrees; going through the data always works.
"""

import os
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dledger.store.index_unit import UNIT_BYTES
from dledger.store.segment import start_of
from dledger_spark.entries.entry_columns import HEADER_BYTES, Positions
from dledger_spark.errors import LogDamaged, SegmentGone
from dledger_spark.log.log_folder import (
    HEADER_FIELDS,
    LogFolder,
    Segment,
    may_be_entry,
    open_file,
)

# Units read at a time: 2 MiB of index, and more rows than one batch needs.
MAX_POSITIONS: Final = 65_536
# Bytes read at a time while going from header to header: some thousand usual entries.
WINDOW_BYTES: Final = 1024 * 1024

_UNIT: Final = np.dtype(
    [("magic", ">i4"), ("pos", ">i8"), ("size", ">i4"), ("index", ">i8"), ("term", ">i8")]
)


def positions_by_index(
    log: LogFolder, segment: Segment, first: int, last: int
) -> Iterator[Positions]:
    """Yield where entries first..last begin, and where the last one ends, in pieces.

    Ends early, without an error, where the index files are missing or wrong.
    """
    while first <= last:
        count = min(last - first + 1, MAX_POSITIONS)
        units = _units(log.index_path, first, count)
        positions = _adjacent(units, segment, first)
        if len(positions) < 2:
            return
        yield positions
        if len(positions) - 1 < count:
            return
        first += count


def positions_by_hop(
    segment: Segment, first: int, last: int, known: tuple[int, int] | None = None
) -> Iterator[Positions]:
    """Yield the same positions from the data alone.

    `known` is the index and the position of an entry at or before `first`; by default of the
    segment's first. Raises LogDamaged: an entry of the range is missing.
    """
    index, pos = known or (segment.first_index, segment.first_pos)
    with open_file(segment.path) as file:
        while index <= last:
            begin = pos
            found, pos, _term = _hop(file, segment, index, pos, last)
            if not found:
                problem = _missing(file, segment, index, pos)
                raise LogDamaged(segment.path, begin - segment.start, problem, index)
            skip = max(0, first - index)
            index += len(found)
            if skip < len(found):
                yield np.array([*found[skip:], pos], np.int64)


def whole_entries(segment: Segment, known: tuple[int, int] | None = None) -> tuple[int, int]:
    """Return the number of adjacent entries in the segment, and the position behind them.

    `known` is the index and the position of the first one; by default the segment's first.
    """
    first, pos = known or (segment.first_index, segment.first_pos)
    index, term = first, -1
    with open_file(segment.path) as file:
        while True:
            found, pos, term = _hop(file, segment, index, pos, 2**63 - 1, term)
            if not found:
                return index - first, pos
            index += len(found)


def _hop(
    file: int, segment: Segment, index: int, pos: int, last: int, term: int = -1
) -> tuple[list[int], int, int]:
    """Return the positions of the entries whose headers are in the window at `pos`; the end; the
    term.
    """
    base = pos
    size = min(WINDOW_BYTES, segment.start + segment.size - base)
    window = os.pread(file, max(size, 0), base - segment.start)
    unpack, limit, end = HEADER_FIELDS.unpack_from, segment.limit, len(window) - HEADER_BYTES
    found: list[int] = []
    while pos - base <= end and index <= last and len(found) < MAX_POSITIONS:
        magic, length, entry_index, entry_term, entry_pos, _, _, _, body = unpack(
            window, pos - base
        )
        if (
            entry_index != index
            or entry_term < term
            or not may_be_entry(magic, length, body, entry_pos == pos)
            or pos + length > limit
        ):
            break
        found.append(pos)
        index, pos, term = index + 1, pos + length, entry_term
    return found, pos, term


def _missing(file: int, segment: Segment, index: int, pos: int) -> str:
    head = os.pread(file, HEADER_BYTES, pos - segment.start)
    if len(head) < HEADER_BYTES and pos < segment.limit:
        return f"the file ends before entry {index}"
    if not any(head):
        return f"nothing is written where entry {index} must be"
    return f"other bytes are where entry {index} must be"


def _units(folder: str, first: int, count: int) -> npt.NDArray[Any]:
    """Return the units of `count` entries from `first`, or as many of them as the files hold."""
    starts = _index_starts(folder)
    parts: list[bytes] = []
    at, end = first * UNIT_BYTES, (first + count) * UNIT_BYTES
    for start, size in starts:
        if start <= at < min(start + size, end):
            part = min(end, start + size) - at
            try:
                with open_file(f"{folder}/{start:020d}") as file:
                    content = os.pread(file, part, at - start)
            except SegmentGone:
                break
            parts.append(content)
            at += len(content)
    content = b"".join(parts)
    return np.frombuffer(content, _UNIT, count=len(content) // UNIT_BYTES)


def _index_starts(folder: str) -> list[tuple[int, int]]:
    """Return starts and lengths of the index files; none if there is no such folder."""
    found: list[tuple[int, int]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                start = start_of(entry.name)
                if start is not None:
                    found.append((start, entry.stat().st_size))
    except FileNotFoundError:
        return []  # no index, or a file was removed: the caller reads the data instead
    return sorted(found)


def _adjacent(units: npt.NDArray[Any], segment: Segment, first: int) -> Positions:
    """Return the positions, and the last end, of the leading units that are adjacent in the
    segment.
    """
    if not len(units):
        return np.empty(0, np.int64)
    pos = units["pos"].astype(np.int64)
    ends = pos + units["size"].astype(np.int64)
    good = (
        (units["index"] == np.arange(first, first + len(units)))
        & (units["size"] >= HEADER_BYTES)
        & (pos >= segment.first_pos)
        & (ends <= segment.limit)
    )
    good[1:] &= pos[1:] == ends[:-1]
    rows = len(good) if good.all() else int(good.argmin())
    if not rows:
        return np.empty(0, np.int64)
    return np.append(pos[:rows], ends[rows - 1])
