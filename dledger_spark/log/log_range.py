"""The range of entries to read, the parts of it that exist, and their division among tasks."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from dledger_spark.errors import CommittedUnknown, DataLost, OptionInvalid, RangeUnavailable
from dledger_spark.log.entry_positions import positions_by_index, whole_entries
from dledger_spark.log.log_folder import LogFolder, Segment

END: Final = "end"  # as an option: all entries, committed or not
START_THERE: Final = "start there, or use failOnDataLoss=false (--no-fail-on-data-loss)"

# A task costs about 0.1 s of one core before its first row, so pieces that are made smaller only to
# use more cores stay above the first limit. The second is the size of Spark's own file pieces.
MIN_PIECE_BYTES: Final = 16 * 1024 * 1024
MAX_PIECE_BYTES: Final = 128 * 1024 * 1024
# Spark's driver keeps some kilobytes for each task. Pieces become larger instead.
MAX_PIECES: Final = 100_000


def resolve_range(log: LogFolder, first: str | int | None, last: str | int | None) -> range:
    """The entries that "from" and "to" name, both ends included.

    Args:
        log: the log.
        first: an index; None for the first entry kept.
        last: an index; "end" for all entries, committed or not; None for the commit index.

    Raises:
        OptionInvalid: not a number.
        CommittedUnknown: no end is given, and the folder does not record one.
        RangeUnavailable: entries are no longer kept, or not committed.
    """
    begin = log.first_index if first in (None, "") else index_option("from", first)
    if last in (None, ""):
        if log.committed is None:
            raise CommittedUnknown(log.path)
        end = log.committed
    elif isinstance(last, str) and last.strip().lower() == END:
        end = end_of_log(log)
    else:
        end = index_option("to", last)
        limit = end_of_log(log) if log.committed is None else log.committed
        if end > limit:
            what = "the log ends with" if log.committed is None else "committed is"
            problem = f"{what} {limit}; ask for less, or for to={END} (all, committed or not)"
            raise RangeUnavailable(log.path, begin, end, problem)
    if begin > end:
        return range(begin, begin)
    if begin < log.first_index:
        problem = f"the first entry kept is {log.first_index}; {START_THERE}"
        raise RangeUnavailable(log.path, begin, end, problem)
    return range(begin, end + 1)


class Gap(NamedTuple):
    """Entries that no file holds although one should, and the problem with that file."""

    first: int
    last: int
    problem: str

    def error(self) -> DataLost:
        """The error for this gap."""
        return DataLost(self.problem, self.first, self.last, "read another node's copy of the log")


def gaps_in(log: LogFolder, entries: range) -> list[Gap]:
    """The gaps that touch `entries`, as far as they show without reading whole files.

    A log that ends too early is noticed only when its last file is read.
    """
    if not entries:
        return []
    found = []
    if not log.segments:
        found.append(Gap(entries.start, entries.stop - 1, f"{log.path}/data holds no entry"))
    elif log.segments[0].first_index > log.first_index:
        first_kept = log.segments[0]
        path = f"{log.path}/data/{first_kept.start - log.segment_bytes:020d}"
        found.append(Gap(log.first_index, first_kept.first_index - 1, _problem(path)))
    for at, (segment, behind) in enumerate(pairwise(log.segments)):
        touches = segment.first_index < entries.stop and behind.first_index > entries.start
        if touches and not log.is_followed(at):
            path = f"{log.path}/data/{segment.start + log.segment_bytes:020d}"
            first = segment.first_index + whole_entries(segment)[0]
            found.append(Gap(first, behind.first_index - 1, _problem(path)))
    return [gap for gap in found if gap.first < entries.stop and gap.last >= entries.start]


def _problem(path: str) -> str:
    return f"{path} {'does not begin with an entry' if os.path.exists(path) else 'is missing'}"


def readable(log: LogFolder, entries: range, *, fail_on_data_loss: bool) -> list[range]:
    """The parts of `entries` that files hold.

    Args:
        log: the log.
        entries: the wanted range, from `resolve_range`.
        fail_on_data_loss: whether all of `entries` must exist.

    Raises:
        DataLost: a part of them is missing.
    """
    gaps = gaps_in(log, entries)
    if fail_on_data_loss:
        if gaps:
            raise gaps[0].error()
        return [entries] if entries else []
    stop = min(entries.stop, end_of_log(log) + 1)
    starts = [entries.start, *(gap.last + 1 for gap in gaps)]
    stops = [*(gap.first for gap in gaps), stop]
    parts = (range(*ends) for ends in zip(starts, stops, strict=True))
    return [part for part in parts if part]


def left_out(entries: range, parts: list[range]) -> list[range]:
    """The ranges that `readable` has left out of `entries`."""
    starts = [entries.start, *(part.stop for part in parts)]
    stops = [*(part.start for part in parts), entries.stop]
    gaps = (range(*ends) for ends in zip(starts, stops, strict=True))
    return [gap for gap in gaps if gap]


def end_of_log(log: LogFolder) -> int:
    """The last entry of the log without a gap before it, committed or not.

    This reads only headers: a torn body is noticed when the entry is read.
    """
    if not log.segments:
        return log.first_index - 1
    return log.segments[-1].first_index + whole_entries(log.segments[-1])[0] - 1


def entries_behind(log: LogFolder, index: int) -> int:
    """How many entries the log has behind one of its entries; -1 stands before the first.

    With an index file that is right there, only these entries are looked at.
    """
    if log.segments and index >= log.segments[-1].first_index:
        segment = log.segments[-1]
        for positions in positions_by_index(log, segment, index, index):
            count, _ = whole_entries(segment, (index, int(positions[0])))
            if count:
                return count - 1
    return max(0, end_of_log(log) - index)


def share_out(
    log: LogFolder, entries: range, piece_bytes: int = MAX_PIECE_BYTES, min_pieces: int = 1
) -> list[range]:
    """Divide a range into adjacent pieces with about equally many bytes of the log.

    Args:
        log: the log.
        entries: the range to divide.
        piece_bytes: a piece holds about this much at most, unless that makes over MAX_PIECES.
        min_pieces: a hint; it never makes pieces smaller than MIN_PIECE_BYTES.
    """
    if not entries:
        return []
    # Bytes of the log before an index, at the borders of segments. In between, entries count as
    # equally long: that is right on average, and needs no reading.
    indexes, amounts = [entries.start], [0]
    for at, segment in enumerate(log.segments):
        last = log.last_in(at, entries.stop - 1)
        first = max(entries.start, segment.first_index)
        if first <= last:
            indexes.append(last + 1)
            amounts.append(amounts[-1] + _amount(log, segment, first, last))
    total = amounts[-1]
    size = max(1, min(piece_bytes, max(MIN_PIECE_BYTES, total // max(min_pieces, 1))))
    count = min(max(1, round(total / size)), len(entries), MAX_PIECES)
    cuts = np.interp(np.linspace(0, total, count + 1), amounts, indexes)
    borders = np.unique(np.rint(cuts).astype(np.int64)).tolist()
    return [range(first, stop) for first, stop in pairwise(borders)]


def _amount(log: LogFolder, segment: Segment, first: int, last: int) -> int:
    """The approximate size in bytes of the entries first..last of a segment."""
    begin = next(positions_by_index(log, segment, first, first), None)
    end = next(positions_by_index(log, segment, last, last), None)
    if begin is None or end is None or end[-1] <= begin[0]:
        return segment.size
    return int(end[-1] - begin[0])


def begin_kept(
    first_index: int, first: str | int | None, *, fail_on_data_loss: bool
) -> str | int | None:
    """Where to begin, if entries from `first` on may be gone.

    Args:
        first_index: the first entry kept.
        first: see `resolve_range`.
        fail_on_data_loss: whether it is an error if they are; otherwise it begins with the first
            entry kept.
    """
    if fail_on_data_loss or first in (None, "") or index_option("from", first) >= first_index:
        return first
    return first_index


def index_option(option: str, value: str | int | None) -> int:
    """An index that an option names. Raises OptionInvalid."""
    try:
        number = int(value) if value is not None else -1
    except ValueError:
        number = -1
    if number < 0:
        raise OptionInvalid(option, str(value), "give the index of an entry, 0 or more")
    return number
