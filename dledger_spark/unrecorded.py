"""Warns of entries that a reader leaves out, because they are not recorded as committed yet.

Spark plans a query in a Python process of its own, so the warning is a line on standard error, and
the filters of `warnings` in the user's process do not reach it; those of PYTHONWARNINGS do.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from dledger_spark.errors import UnrecordedEntries
from dledger_spark.log_folder import LogFolder
from dledger_spark.log_range import entries_behind
from dledger_spark.readable_log import ReadableLog
from dledger_spark.source_options import LATEST, SourceOptions


def warn_of_unrecorded(logs: Iterable[ReadableLog]) -> None:
    """Warn once for each log that holds entries behind those recorded as committed.

    Args:
        logs: the logs that a query reads to their ends.
    """
    for log in logs:
        if log.committed is not None:  # without a record nothing stands behind it
            _warn(log.name, log.committed, log.unrecorded)


def warn_of_unrecorded_in(log: LogFolder) -> None:
    """Warn once if a folder holds entries behind those recorded as committed.

    Args:
        log: the log of the folder, which a program without Spark reads to its end.
    """
    if log.committed is not None:
        _warn(log.path, log.committed, entries_behind(log, log.committed))


def is_open(log: ReadableLog, entries: range, options: SourceOptions) -> bool:
    """Whether a query would read more of a log if more were recorded as committed.

    Args:
        log: the log.
        entries: what the query reads of it.
        options: the options of the query.
    """
    if options.last is not None or log.committed is None or entries.stop <= log.committed:
        return False
    ending = options.ending
    if ending is None or ending.time_ms is not None:
        return True
    return ending.of_group.get(log.group or "", ending.everywhere) in (None, LATEST)


def _warn(name: str, committed: int, count: int) -> None:
    """Warn each time: Python shows the same text only once in a process, which reads many times.

    The filter stands behind all others, so that those of the user count.
    """
    if count:
        warnings.filterwarnings("always", category=UnrecordedEntries, append=True)
        # Names the line that called the reader.
        warnings.warn(UnrecordedEntries(name, committed, count), stacklevel=4)
