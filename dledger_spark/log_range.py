"""Which entries a reader asks for, and how they are shared out."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from dledger_spark.entry_positions import positions_by_index, whole_entries
from dledger_spark.errors import CommittedUnknown, LogDamaged, OptionInvalid, RangeUnavailable
from dledger_spark.log_folder import LogFolder, Segment

END: Final = "end"  # as an option: all entries, committed or not

# A task costs about 0.1 s of one core before its first row: pieces that are only made smaller to
# busy more cores stay above the first, and the second is the size of Spark's own file pieces.
MIN_PIECE_BYTES: Final = 16 * 1024 * 1024
MAX_PIECE_BYTES: Final = 128 * 1024 * 1024


def resolve_range(log: LogFolder, first: str | int | None, last: str | int | None) -> range:
    """The entries that "from" and "to" stand for; both are inclusive.

    Args:
        log: the log.
        first: an index; None for the first entry kept.
        last: an index, "end" for all entries, committed or not; None for what is committed.

    Raises:
        OptionInvalid: not a number.
        CommittedUnknown: no end is given, and the folder does not record one.
        RangeUnavailable: entries are not kept any more, or not committed.
        LogDamaged: entries are committed, and no file holds them.
    """
    begin = log.first_index if first in (None, "") else _number("from", first)
    if last in (None, ""):
        if log.committed is None:
            raise CommittedUnknown(log.path)
        end = log.committed
    elif isinstance(last, str) and last.strip().lower() == END:
        end = end_of_log(log)
    else:
        end = _number("to", last)
        limit = end_of_log(log) if log.committed is None else log.committed
        if end > limit:
            what = "the log ends with" if log.committed is None else "committed is"
            problem = f"{what} {limit}; ask for less, or for to={END} (all, committed or not)"
            raise RangeUnavailable(log.path, begin, end, problem)
    if begin > end:
        return range(begin, begin)
    if begin < log.first_index:
        problem = f"the first entry kept is {log.first_index}; start there"
        raise RangeUnavailable(log.path, begin, end, problem)
    if not log.segments:
        raise LogDamaged(f"{log.path}/data", 0, f"no file holds entry {begin}, which is committed")
    return range(begin, end + 1)


def end_of_log(log: LogFolder) -> int:
    """The last entry that is there, in order, committed or not.

    Headers are looked at, bodies are not: a torn one is found when it is read.
    """
    if not log.segments:
        return log.first_index - 1
    return log.segments[-1].first_index + whole_entries(log.segments[-1])[0] - 1


def share_out(
    log: LogFolder, entries: range, piece_bytes: int = MAX_PIECE_BYTES, min_pieces: int = 1
) -> list[range]:
    """Adjacent ranges that hold about equally much of the log, in order.

    Args:
        log: the log.
        entries: what is shared out.
        piece_bytes: a range holds about this much at the most.
        min_pieces: a hint; ranges do not get smaller than MIN_PIECE_BYTES because of it.
    """
    if not entries:
        return []
    # How much of the log lies before an index, at the borders of segments. In between, sizes are
    # taken as equal: right on average, and nothing has to be read for it.
    indexes, amounts = [entries.start], [0]
    for at, segment in enumerate(log.segments):
        last = log.last_in(at, entries.stop - 1)
        first = max(entries.start, segment.first_index)
        if first <= last:
            indexes.append(last + 1)
            amounts.append(amounts[-1] + _amount(log, segment, first, last))
    total = amounts[-1]
    size = max(1, min(piece_bytes, max(MIN_PIECE_BYTES, total // max(min_pieces, 1))))
    count = min(max(1, round(total / size)), len(entries))
    cuts = np.interp(np.linspace(0, total, count + 1), amounts, indexes)
    borders = np.unique(np.rint(cuts).astype(np.int64)).tolist()
    return [range(first, stop) for first, stop in pairwise(borders)]


def _amount(log: LogFolder, segment: Segment, first: int, last: int) -> int:
    """About how many bytes the entries first..last of a segment take."""
    begin = next(positions_by_index(log, segment, first, first), None)
    end = next(positions_by_index(log, segment, last, last), None)
    if begin is None or end is None or end[-1] <= begin[0]:
        return segment.size
    return int(end[-1] - begin[0])


def _number(option: str, value: str | int | None) -> int:
    try:
        number = int(value) if value is not None else -1
    except ValueError:
        number = -1
    if number < 0:
        raise OptionInvalid(option, str(value), "give the index of an entry, 0 or more")
    return number
