"""Adds the new entries of many logs to the tables of facts, by tasks of Spark.

It goes in rounds. In a round a task for each group runs the first pass (`passes`) over its next
entries, then a task for each range runs the second; both write Parquet files where they run, and
the driver commits these, each table once for all groups. So what a lost driver had not committed is
at most a round, and the driver holds no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dledger_spark.facts.fact_schemas import FACTS, LAST
from dledger_spark.log.left_out import LeftOut, split_at
from dledger_spark.log.log_range import MAX_PIECE_BYTES
from dledger_spark.log.readable_log import ReadableLog
from dledger_spark.tables.fact_file import FileWritten
from dledger_spark.tables.fact_table import FactTable, app_of
from dledger_spark.tables.passes import (
    DecodeTask,
    Files,
    Ordered,
    OrderTask,
    Target,
    decode,
    order,
)
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.update import Updated, compact_all, fact_tables, lacking

# The bytes of each log in a round: about 20 s of the first pass.
ROUND_BYTES: Final = 4 * 1024 * 1024 * 1024


@dataclass
class _Behind:
    """A log, whose readable entries `parts` are not in the tables yet.

    Attributes:
        untold: what is left out and not yet in the tables.
    """

    log: ReadableLog
    wanted: range
    parts: list[range]
    left_out: list[LeftOut]
    untold: list[LeftOut]
    state: bytes | None
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FACTS, 0))

    def next_ranges(self, round_bytes: int, range_bytes: int) -> list[range]:
        """Remove and return what the next round takes: of one part, in ranges."""
        part = self.parts.pop(0)
        stop = self.log.stop_within(part, round_bytes)
        if stop < part.stop:
            self.parts.insert(0, range(stop, part.stop))
        return self.log.share_out(range(part.start, stop), range_bytes, 1)

    def tell_before(self, index: int) -> list[LeftOut]:
        """Remove and return what is left out before an entry."""
        told, self.untold = split_at(self.untold, index)
        return told


def update_on_spark(
    session: Any,
    home: TableHome,
    logs: Sequence[ReadableLog],
    stops: Mapping[str | None, int] | None = None,
    *,
    checksums: bool = True,
    fail_on_data_loss: bool = True,
    round_bytes: int = ROUND_BYTES,
    range_bytes: int = MAX_PIECE_BYTES,
    on_round: Callable[[], None] = lambda: None,
) -> list[Updated]:
    """Add the new entries of logs, up to their commit indexes.

    Args:
        session: of classic Spark (not Connect). Its executors see the tables' folder, and what the
            logs are read from.
        home: the tables' folder, `held` by the caller.
        logs: the logs, of groups of different names.
        stops: the entries before which to stop, by group; others stop behind the commit index.
        checksums: whether to check the sums of each entry.
        fail_on_data_loss: whether missing and damaged entries are an error.
        round_bytes: the bytes of each log that are committed at a time.
        range_bytes: the bytes of the log for a task of the second pass.
        on_round: called before each round.

    Raises:
        DledgerSparkError: see `update_tables`.
        Py4JJavaError: a task failed too often. What earlier rounds committed is right, and the next
            update goes on.
    """
    tables = fact_tables(home)
    behind = []
    for log in logs:
        stop = None if stops is None else stops.get(log.group)
        found = lacking(home, log, tables, stop, fail_on_data_loss=fail_on_data_loss)
        wanted, parts, left_out, fold = found
        state = None if fold is None else fold.state
        behind.append(_Behind(log, wanted, parts, left_out, left_out, state))
    while waiting := [one for one in behind if one.parts]:
        on_round()
        _round(session, home, tables, waiting, checksums, round_bytes, range_bytes)
    compact_all(tables)
    return [Updated(one.log.group, one.wanted, one.rows, tuple(one.left_out)) for one in behind]


def _round(
    session: Any,
    home: TableHome,
    tables: Mapping[str, FactTable],
    waiting: Sequence[_Behind],
    checksums: bool,
    round_bytes: int,
    range_bytes: int,
) -> None:
    ranges = [one.next_ranges(round_bytes, range_bytes) for one in waiting]
    targets = [_target(tables, one.log.group) for one in waiting]
    orders = [
        OrderTask(one.log.origin, one.state, of_log, one.tell_before(of_log[0].start), target)
        for one, of_log, target in zip(waiting, ranges, targets, strict=True)
    ]
    ordered: list[Ordered] = _run(session, order, orders)
    of_logs = [
        (at, DecodeTask(one.log.origin, entries, known, target, checksums))
        for at, (one, found, target) in enumerate(zip(waiting, ordered, targets, strict=True))
        for entries, known in found.ranges
    ]
    decoded: list[Files] = _run(session, decode, [task for _, task in of_logs])
    files: dict[str, list[FileWritten]] = {name: [] for name in FACTS}
    of_files = [(at, of_log.files) for at, of_log in enumerate(ordered)]
    of_files += [(at, found) for (at, _), found in zip(of_logs, decoded, strict=True)]
    for at, found in of_files:
        for name, written in found.items():
            files[name] += written
            waiting[at].rows[name] += sum(one.rows for one in written)
    stops = {one.log.group: of_log[-1].stop for one, of_log in zip(waiting, ranges, strict=True)}
    for one, of_log in zip(waiting, ordered, strict=True):
        one.state = of_log.state
        home.save_state(one.log.group, stops[one.log.group], of_log.state)
    note = ", ".join(
        f"{app_of(one.log.group)} {of_log[0].start}-{of_log[-1].stop - 1}"
        for one, of_log in zip(waiting, ranges, strict=True)
    )
    for name in (*(name for name in tables if name != LAST), LAST):
        ends = {app_of(group): stop for group, stop in stops.items()}
        there = {app: tables[name].next_index(app) for app in ends}
        if files[name] or name == LAST or None in there.values():
            ends = {app: max(stop, there[app] or 0) for app, stop in ends.items()}
            tables[name].commit(files[name], ends, note)
    for group, stop in stops.items():
        home.drop_states_before(group, stop)


def _target(tables: Mapping[str, FactTable], group: str | None) -> Target:
    app = app_of(group)
    return Target(
        {name: table.path for name, table in tables.items()},
        {name: table.next_index(app) for name, table in tables.items()},
    )


def _run(session: Any, task: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
    """Run a task of Spark for each argument; return the results in order."""
    if not arguments:
        return []
    return list(session.sparkContext.parallelize(arguments, len(arguments)).map(task).collect())
