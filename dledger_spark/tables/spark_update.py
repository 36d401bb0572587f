"""Adds the new entries of many logs to the tables of facts, by tasks of Spark.

It goes in rounds. In a round a task for each group runs the first pass (`passes`) over its next
entries, then a task for each range runs the second; both write Parquet files where they run, and
the driver commits these, each table once for all groups. The driver holds no rows. Tasks keep what
they have made of each range, so a driver that is lost costs the ranges that its tasks were in.

A log with a damaged entry commits nothing in the round that meets it. The next round has the
entries before it, or all but what cannot be read; what is kept of other ranges is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dledger_spark.errors import OF_ONE_LOG, DledgerSparkError
from dledger_spark.facts.fact_schemas import FACTS, LAST
from dledger_spark.log.left_out import LeftOut, joined, split_at, without
from dledger_spark.log.log_range import MAX_PIECE_BYTES
from dledger_spark.log.readable_log import ReadableLog
from dledger_spark.tables.fact_file import FileWritten
from dledger_spark.tables.fact_table import FactTable, app_of
from dledger_spark.tables.passes import (
    Damage,
    DecodeTask,
    Files,
    Ordered,
    OrderTask,
    SearchTask,
    Target,
    decode,
    order,
    search,
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
        damage: the error that ends the update of this log, such as that of a damaged entry.
    """

    log: ReadableLog
    wanted: range
    parts: list[range]
    left_out: list[LeftOut]
    untold: list[LeftOut]
    state: bytes | None
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FACTS, 0))
    damage: DledgerSparkError | None = None

    def next_ranges(self, home: TableHome, round_bytes: int, range_bytes: int) -> list[range]:
        """Return the ranges of the next round; those of which something is kept are as before."""
        stop = self.log.stop_within(range(self.parts[0].start, self.parts[-1].stop), round_bytes)
        found = []
        for part in _before(self.parts, max(stop, self.parts[0].start + 1)):
            kept = home.kept_ranges(self.log.group, part)
            rest = range(kept[-1].stop if kept else part.start, part.stop)
            found += kept + (self.log.share_out(rest, range_bytes, 1) if rest else [])
        return found

    def told_with(self, last: range) -> list[LeftOut]:
        """Return what is left out and not yet in the tables, before the last range of a round."""
        return split_at(self.untold, last.start)[0]

    def commit(self, ranges: Sequence[range], state: bytes) -> None:
        """Take in that a round has committed ranges."""
        self.state = state
        self.parts = _from(self.parts, ranges[-1].stop)
        self.untold = split_at(self.untold, ranges[-1].start)[1]

    def end_before(self, first: Damage) -> None:
        """Let the update end before a damaged entry."""
        self.damage = first.error
        self.parts = _before(self.parts, first.reached)

    def leave_out(self, found: Sequence[LeftOut]) -> None:
        self.left_out = joined([*self.left_out, *found])
        self.untold = joined([*self.untold, *found])
        self.parts = [each for part in self.parts for each in without(part, _within(found, part))]


def _before(parts: Sequence[range], stop: int) -> list[range]:
    return [range(part.start, min(part.stop, stop)) for part in parts if part.start < stop]


def _from(parts: Sequence[range], start: int) -> list[range]:
    return [range(max(part.start, start), part.stop) for part in parts if part.stop > start]


def _within(left_out: Sequence[LeftOut], part: range) -> list[LeftOut]:
    return [each for each in left_out if each.last >= part.start and each.first < part.stop]


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
        DledgerSparkError: see `update_tables`. What is wrong with a log is raised once all other
            logs are up to date.
        Py4JJavaError: a task failed too often. What earlier rounds committed is right, and the next
            update goes on.
    """
    tables = fact_tables(home)
    behind = []
    for log in logs:
        stop = None if stops is None else stops.get(log.group)
        try:
            wanted, parts, left_out, fold = lacking(
                home, log, tables, stop, fail_on_data_loss=fail_on_data_loss, finds_damage=False
            )
        except OF_ONE_LOG as error:
            behind.append(_Behind(log, range(0), [], [], [], None, damage=error))
            continue
        # As it was saved: what is kept of ranges names the bytes of the state before.
        state = None if fold is None else home.state(log.group, fold.next_index)
        home.drop_states_before(log.group, 0 if fold is None else fold.next_index)
        behind.append(_Behind(log, wanted, parts, left_out, list(left_out), state))
    rounds = _Rounds(session, home, tables, checksums, fail_on_data_loss)
    while waiting := [one for one in behind if one.parts]:
        on_round()
        rounds.run(waiting, round_bytes, range_bytes)
    compact_all(tables)
    for one in behind:
        if one.damage is not None:
            raise one.damage
    return [Updated(one.log.group, one.wanted, one.rows, tuple(one.left_out)) for one in behind]


class _Rounds(NamedTuple):
    session: Any
    home: TableHome
    tables: Mapping[str, FactTable]
    checksums: bool
    fail_on_data_loss: bool

    def run(self, waiting: Sequence[_Behind], round_bytes: int, range_bytes: int) -> None:
        """Make and commit the next ranges of logs, except for those that turn out damaged."""
        ranges = [one.next_ranges(self.home, round_bytes, range_bytes) for one in waiting]
        targets = [_target(self.home, self.tables, one.log.group) for one in waiting]
        orders = [
            OrderTask(
                one.log.origin,
                one.state,
                of_log,
                one.told_with(of_log[-1]),
                target,
                self.checksums,
            )
            for one, of_log, target in zip(waiting, ranges, targets, strict=True)
        ]
        ordered: list[Ordered | Damage] = _run(self.session, order, orders)
        of_logs = [
            (at, DecodeTask(one.log.origin, entries, known, target, self.checksums))
            for at, (one, found, target) in enumerate(zip(waiting, ordered, targets, strict=True))
            if not isinstance(found, Damage)
            for entries, known in found.ranges
        ]
        decoded: list[Files | Damage] = _run(self.session, decode, [task for _, task in of_logs])
        files: list[list[Files]] = [[] for _ in waiting]
        damage: list[list[Damage]] = [[] for _ in waiting]
        for at, done in enumerate(ordered):
            if isinstance(done, Damage):
                damage[at].append(done)
            else:
                files[at].append(done.files)
        for (at, _), made in zip(of_logs, decoded, strict=True):
            if isinstance(made, Damage):
                damage[at].append(made)
            else:
                files[at].append(made)
        self._commit(
            [
                _Done(one, of_log, done.state, made)
                for one, of_log, done, made, met in zip(
                    waiting, ranges, ordered, files, damage, strict=True
                )
                if not met and isinstance(done, Ordered)
            ]
        )
        self._go_around([(one, met) for one, met in zip(waiting, damage, strict=True) if met])

    def _commit(self, done: Sequence[_Done]) -> None:
        files: dict[str, list[FileWritten]] = {name: [] for name in FACTS}
        for one in done:
            for of_task in one.files:
                for name, written in of_task.items():
                    files[name] += written
                    one.behind.rows[name] += sum(file.rows for file in written)
        stops = {one.behind.log.group: one.ranges[-1].stop for one in done}
        for one in done:
            self.home.save_state(one.behind.log.group, one.ranges[-1].stop, one.state)
        note = ", ".join(
            f"{app_of(one.behind.log.group)} {one.ranges[0].start}-{one.ranges[-1].stop - 1}"
            for one in done
        )
        for name in (*(name for name in self.tables if name != LAST), LAST) if done else ():
            table = self.tables[name]
            ends = {app_of(group): stop for group, stop in stops.items()}
            there = {app: table.next_index(app) for app in ends}
            if files[name] or name == LAST or None in there.values():
                ends = {app: max(stop, there[app] or 0) for app, stop in ends.items()}
                table.commit(files[name], ends, note)
        for one in done:
            one.behind.commit(one.ranges, one.state)
            self.home.drop_states_before(one.behind.log.group, one.ranges[-1].stop)

    def _go_around(self, damaged: Sequence[tuple[_Behind, list[Damage]]]) -> None:
        """Let the next round of logs leave out what is damaged, or end before it."""
        if self.fail_on_data_loss:
            for one, met in damaged:
                one.end_before(min(met, key=lambda each: each.reached))
            return
        searches = [(at, each) for at, (_, met) in enumerate(damaged) for each in met]
        tasks = [SearchTask(damaged[at][0].log.origin, each.entries) for at, each in searches]
        left_out: list[list[LeftOut]] = _run(self.session, search, tasks)
        for (at, each), found in zip(searches, left_out, strict=True):
            if found:
                damaged[at][0].leave_out(found)
            else:  # it was met, and is not there any more: the machine is at fault, not the log
                damaged[at][0].end_before(each)


class _Done(NamedTuple):
    """What a round has made of a log: the files of each task, and the state behind the ranges."""

    behind: _Behind
    ranges: list[range]
    state: bytes
    files: list[Files]


def _target(home: TableHome, tables: Mapping[str, FactTable], group: str | None) -> Target:
    app = app_of(group)
    return Target(
        {name: table.path for name, table in tables.items()},
        {name: table.next_index(app) for name, table in tables.items()},
        home.passes_path(group),
    )


def _run(session: Any, task: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
    """Run a task of Spark for each argument; return the results in order."""
    if not arguments:
        return []
    return list(session.sparkContext.parallelize(arguments, len(arguments)).map(task).collect())
