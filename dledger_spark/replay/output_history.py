"""Checks that an output was made from the log to be replayed, and for a gap between the two.

Equal rows of one entry mean equal history up to there, because the chain sum covers all entries
before. In a log of Java's and over the network entries have no sums, so there only terms and bodies
are compared. The check compares the newest entry that output and log share. It refuses an output
that shares no entry with the log, because rows of another group of that name could get into the
same table unnoticed.
"""

from typing import Any

from dledger_spark.errors import LogDamaged, OutputInvalid
from dledger_spark.log.entry_batches import BATCH_BYTES
from dledger_spark.log.log_range import END, Gap
from dledger_spark.log.mark import NO_CHAIN, NO_TERM, differ, mark_of
from dledger_spark.log.readable_log import ReadableLog
from dledger_spark.replay.table_folder import (
    Published,
    check_columns_of,
    file_notes,
    missing,
    published_of,
    row_of,
)
from dledger_spark.schema import ENTRIES, TABLES

_REMEDY = "use a new folder"


def check_history(
    log: ReadableLog, out: str, *, goes_on: bool, fail_on_data_loss: bool
) -> list[Gap]:
    """Refuse an output that was made from another log, or that this log cannot continue.

    `goes_on`: the replay continues where an earlier one ended. Without `fail_on_data_loss`, gaps
    between output and log are returned, and an output may have no entry in common with the log.

    Raises:
        OutputInvalid: the output was made from another log, or may have been.
        DataLost: entries between the output's first and the log's first are in neither.
        LogDamaged: the entry to compare cannot be read.
    """
    files = {table: published_of(out, table, log.group) for table in TABLES}
    for table, found in files.items():
        if found:
            check_columns_of(found[-1], table)
    newest = [found[-1] for found in files.values() if found]
    for file in newest:
        if (group := file_notes(file).group) != log.group:
            problem = f"has a name of group {log.group!r}, and holds group {group!r}"
            raise OutputInvalid(file.path, f"{problem}: {_REMEDY}")
    if not newest:
        return []
    end = log.resolve(None, END).stop - 1 if log.committed is None else log.committed
    # Compare both tables: a file that was copied into one of them shows only there.
    compared = [_compare(log, table, found, end) for table, found in files.items()]
    gaps = _gaps_before(log, out, files) if goes_on else []
    if fail_on_data_loss and gaps:
        raise gaps[0].error()
    if fail_on_data_loss and not any(compared):
        file = max(newest, key=lambda one: one.entries.stop)
        has = f"entries {log.first_index}..{end}" if end >= log.first_index else "no entry"
        problem = (
            f"covers entries up to {file.entries.stop - 1}, and {log.name} has {has}: "
            "nothing shows that both are the same log"
        )
        remedy = f"{_REMEDY}, or replay a log that has more entries in common with this output"
        raise OutputInvalid(file.path, f"{problem}; {remedy}")
    return gaps


def _compare(log: ReadableLog, table: str, files: list[Published], end: int) -> bool:
    """Compare the newest entry that a table and the log share; return whether there is one."""
    damage: LogDamaged | None = None
    for file in reversed(files):
        index = min(file.entries.stop - 1, end)
        if index < max(file.entries.start, log.first_index - 1):
            continue
        try:
            equal = _is_equal(log, table, file, index)
        except LogDamaged as error:  # an older entry will do as well
            damage = damage or error
            continue
        if equal is None:
            continue
        if not equal:
            problem = f"was made from another log: entry {index} of {log.name} is another one"
            raise OutputInvalid(file.path, f"{problem}; {_REMEDY}")
        return True
    if damage is not None:
        raise damage
    return False


def _is_equal(log: ReadableLog, table: str, file: Published, index: int) -> bool | None:
    """Return whether file and log have the same entry; None if they cannot be compared."""
    is_last = index == file.entries.stop - 1
    if index == log.first_index - 1:
        mark = log.mark(index)
        if not is_last or mark is None or mark.term == NO_TERM or mark.chain == NO_CHAIN:
            return None
        return not differ(file_notes(file).last, mark)
    one = range(index, index + 1)
    if not log.parts(one, fail_on_data_loss=False):
        return None
    batch = next(log.batches(one, batch_bytes=BATCH_BYTES, checksums=True))
    if table == ENTRIES:
        written = row_of(file, index)
        return written is not None and _are_equal(batch.to_pylist()[0], written)
    if not is_last:
        return None
    return not differ(file_notes(file).last, mark_of(batch))


def _are_equal(row: dict[str, Any], written: dict[str, Any]) -> bool:
    """Return whether two rows are of the same entry; a sum of 0 is unknown."""
    same = all(row[name] == written[name] for name in ("term", "magic", "pos", "size", "body"))
    sums = ((row[name], written[name]) for name in ("body_crc", "chain_crc"))
    return same and all(one == other or 0 in (one, other) for one, other in sums)


def _gaps_before(log: ReadableLog, out: str, files: dict[str, list[Published]]) -> list[Gap]:
    """Return the entries after an output's first one that neither the output nor the log has."""
    first = min(found[0].entries.start for found in files.values() if found)
    before = range(first, log.first_index)
    gaps = {gap for found in files.values() for gap in missing(found, before)}
    problem = f"{log.name} now begins with entry {log.first_index}, and {out} lacks some before it"
    return sorted(Gap(gap.start, gap.stop - 1, problem) for gap in gaps)
