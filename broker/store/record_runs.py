"""Reads many records of the log at once: neighbouring ones by one read.

A read of one record costs as much as ten more kilobytes in another read.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from operator import add, sub
from typing import Final

from dledger import OutsideLog

# Between two records of one queue lie the headers of entries, and messages of other queues.
_MAX_GAP_BYTES: Final = 8 * 1024
_MAX_RUN_BYTES: Final = 512 * 1024

# Larger records are not copied out of a read; for smaller ones a copy takes less time than a view
# of the memory.
_COPIED_BYTES: Final = 4 * 1024


def read_records(
    read_bytes: Callable[[int, int], bytes], places: Sequence[int], sizes: Sequence[int]
) -> list[bytes | memoryview]:
    """Read the records at these positions, as pieces that joined are the concatenated records.

    Neighbouring records, such as the messages of a batch, are one piece. The memory of a run is
    kept while one of its pieces is: join them soon.

    Args:
        read_bytes: reads so many bytes at a position of the log. Raises OutsideLog.
        places: the position of each, ascending.
        sizes: the size of each.

    Raises OutsideLog: a record is not in the log.
    """
    if len(places) == 1:  # as in most answers to waiting pulls
        return [read_bytes(places[0], sizes[0])]
    pieces: list[bytes | memoryview] = []
    ends = list(map(add, places, sizes))
    gaps = list(map(sub, places[1:], ends))
    begin = 0
    for end in _run_ends(places, ends, gaps):
        first, last = places[begin], ends[end - 1]
        run = slice(begin, end)
        begin = end
        try:
            read = read_bytes(first, last - first)
        except OutsideLog:
            if run.stop - run.start == 1:
                raise
            # The run crosses the end of a segment.
            pieces += map(read_bytes, places[run], sizes[run])
            continue
        between = gaps[run.start : run.stop - 1]
        if not any(between):
            pieces.append(read)
            continue
        count = run.stop - run.start
        memory = read if len(read) <= count * _COPIED_BYTES else memoryview(read)
        begins = [first, *compress(places[run][1:], between)]
        stops = [*compress(ends[run], between), last]
        pieces += [
            memory[place - first : behind - first]
            for place, behind in zip(begins, stops, strict=True)
        ]
    return pieces


def _run_ends(places: Sequence[int], ends: Sequence[int], gaps: Sequence[int]) -> list[int]:
    """Return where runs end, as indexes into `places`; `gaps` are the bytes between the records."""
    if not places:
        return []
    if not gaps or (
        min(gaps) >= 0 and max(gaps) <= _MAX_GAP_BYTES and ends[-1] - places[0] <= _MAX_RUN_BYTES
    ):
        return [len(places)]
    run_ends: list[int] = []
    first = places[0]
    for at, gap in enumerate(gaps, start=1):
        if not 0 <= gap <= _MAX_GAP_BYTES or ends[at] - first > _MAX_RUN_BYTES:
            run_ends.append(at)
            first = places[at]
    run_ends.append(len(places))
    return run_ends
