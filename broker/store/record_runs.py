"""Reads many records of the log at once: those that lie near each other by one read.

A read of one record costs as much as ten kilobytes more in a read that is made anyway.
"""

from collections.abc import Callable, Sequence
from typing import Final

from dledger import OutsideLog

# Between two records of one queue lie the headers of entries, and messages of other queues.
_MAX_GAP_BYTES: Final = 8 * 1024
_MAX_RUN_BYTES: Final = 512 * 1024


def read_records(
    read_bytes: Callable[[int, int], bytes], places: Sequence[tuple[int, int]]
) -> list[bytes | memoryview]:
    """The records at these positions, each with its size.

    The memory of a run is kept as long as one of its records is: join them soon.

    Args:
        read_bytes: reads so many bytes at a position of the log. Raises OutsideLog.
        places: position and size of each, rising.

    Raises:
        OutsideLog: a record is not in the log.
    """
    records: list[bytes | memoryview] = []
    begin = 0
    for end in _run_ends(places):
        run = places[begin:end]
        begin = end
        first, (last, last_size) = run[0][0], run[-1]
        try:
            read = read_bytes(first, last + last_size - first)
        except OutsideLog:
            if len(run) == 1:
                raise
            # The end of a segment lies within.
            records += [read_bytes(place, size) for place, size in run]
            continue
        if len(run) == 1:
            records.append(read)
        else:
            view = memoryview(read)
            records += [view[place - first : place - first + size] for place, size in run]
    return records


def _run_ends(places: Sequence[tuple[int, int]]) -> list[int]:
    """Where runs end, as indexes into `places`."""
    ends: list[int] = []
    first = behind = places[0][0] if places else 0
    for at, (place, size) in enumerate(places):
        if not behind <= place <= behind + _MAX_GAP_BYTES or (
            place + size - first > _MAX_RUN_BYTES and place != first
        ):
            ends.append(at)
            first = place
        behind = place + size
    if places:
        ends.append(len(places))
    return ends
