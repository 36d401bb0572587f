"""Ranges of entries, as options name them, and gaps in the files of a log."""

import os
from itertools import pairwise
from typing import Final, NamedTuple

from dledger_spark.errors import DataLost, OptionInvalid
from dledger_spark.log.entry_positions import whole_entries
from dledger_spark.log.log_folder import LogFolder

END: Final = "end"  # as an option: all entries, committed or not
START_THERE: Final = "start there, or use failOnDataLoss=false (--no-fail-on-data-loss)"

# A task costs about 0.1 s of one core before its first row, so pieces that are made small to use
# more cores stay above the first limit. The second is the size of Spark's own file pieces.
MIN_PIECE_BYTES: Final = 16 * 1024 * 1024
MAX_PIECE_BYTES: Final = 128 * 1024 * 1024
# Spark's driver keeps some kilobytes for each task, so pieces of a larger log are larger.
MAX_PIECES: Final = 100_000


class Gap(NamedTuple):
    """Entries that should be in a file and are in none, and the problem with that file."""

    first: int
    last: int
    problem: str

    def error(self) -> DataLost:
        return DataLost(self.problem, self.first, self.last, "read another node's copy of the log")


def gaps_in(log: LogFolder, entries: range) -> list[Gap]:
    """Return the gaps that touch `entries`, as far as they show without reading whole files.

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


def end_of_log(log: LogFolder) -> int:
    """Return the last entry of the log without a gap before it, committed or not.

    This reads only headers: a torn body is noticed when the entry is read.
    """
    if not log.segments:
        return log.first_index - 1
    return log.segments[-1].first_index + whole_entries(log.segments[-1])[0] - 1


def begin_kept(
    first_index: int, first: str | int | None, *, fail_on_data_loss: bool
) -> str | int | None:
    """Return the first entry to read: `first`, or the first kept one if entries from `first` are
    gone.

    With `fail_on_data_loss` it is always `first`. For its forms see `ReadableLog.resolve`.
    """
    if fail_on_data_loss or first in (None, "") or index_option("from", first) >= first_index:
        return first
    return first_index


def index_option(option: str, value: str | int | None) -> int:
    """Parse an index that an option names. Raises OptionInvalid."""
    try:
        number = int(value) if value is not None else -1
    except ValueError:
        number = -1
    if number < 0:
        raise OptionInvalid(option, str(value), "give the index of an entry, 0 or more")
    return number
