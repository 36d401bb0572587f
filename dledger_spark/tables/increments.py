"""What new facts change in each derived table, and which facts that is computed from.

A table is made anew at the places that new facts touch: the minutes, positions or indexes of its
rows. Its query runs over the facts that rows at these places depend on. It sees them as views under
their own names; under `all_NAME` it finds all facts, under `new_NAME` those that the table lacks,
and under `old_NAME` a derived table as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.tables.derived import QUEUE_MINUTES, query
from dledger_spark.tables.engine import Engine
from dledger_spark.tables.touched import (
    Literal,
    Touched,
    before_all,
    from_first,
    inside,
    is_group,
    rows_in,
    text_of,
    time_of,
    touched,
)

MINUTE_MS: Final = 60_000
# Rows of the same 64 MiB of the log, and of as many entries, are made anew together.
POSITIONS: Final = 64 * 1024 * 1024
INDEXES: Final = 64 * 1024

# Returns the views of facts, by name, that give the rows at some places.
Views = Callable[[Engine, Touched], Mapping[str, str]]


class Increment(NamedTuple):
    """How a table is brought up to date.

    Attributes:
        column: the column of the table that has the places.
        unit: places are made anew in whole units of it.
        places: the query for the places that new facts touch: columns `raft_group` and `place`.
        views: see `Views`.
        literal: how a place is written.
        to_the_end: whether all places behind the first one of a group are touched too.
        key: the columns that identify a row, if a row's place depends on several facts.
        concerned: the views of facts that give the rows that new facts are about, if new facts
            alone do not. The query over them is the view `fresh`.
    """

    column: str
    unit: int
    places: str
    views: Views
    literal: Literal = str
    to_the_end: bool = False
    key: tuple[str, ...] = ()
    concerned: Mapping[str, str] = MappingProxyType({})

    @property
    def units(self) -> str:
        """The query for the units of the places that new facts touch."""
        behind = f"((p.place % {self.unit}) + {self.unit}) % {self.unit}"
        return f"select distinct p.raft_group, p.place - {behind} from ({self.places}) p"

    def rows(self, table: str, query: str, where: Touched) -> str:
        """Return the query for the rows of a table at some places."""
        found = f"select r.* from (\n{query}\n) r where ({self._inside('r', where)})"
        if self.key:
            # Of other rows the views may have only a part.
            found += f"""
                and not exists (
                    select 1 from old_{table} o
                    where {_same(self.key, "o", "r")} and not ({self._inside("o", where)})
                )
            """
        return found

    def _inside(self, alias: str, where: Touched) -> str:
        return inside(f"{alias}.{self.column}", where, self.literal, f"{alias}.raft_group")

    def touched(self, rows: Iterable[tuple[str | None, int | None]]) -> Touched:
        """Return what the rows of the query `places` say."""
        found = touched(rows, self.unit)
        return from_first(found) if self.to_the_end else found


def _same(key: Iterable[str], one: str, other: str) -> str:
    return " and ".join(f"{one}.{name} is not distinct from {other}.{name}" for name in key)


def _stored_in(_engine: Engine, where: Touched) -> dict[str, str]:
    return {"messages": rows_in("all_messages", "store_time", where, time_of)}


# --- by minute ------------------------------------------------------------------------------------

_STORED: Final = """
select n.raft_group, unix_millis(n.store_time) as place
from new_messages n
where n.store_time is not null
"""

_QUEUE: Final = """
    on {one}.topic = {other}.topic and {one}.topic_life = {other}.topic_life
    and {one}.queue = {other}.queue and {one}.raft_group is not distinct from {other}.raft_group
"""
_READER: Final = f"{_QUEUE} and {{one}}.consumer_group = {{other}}.consumer_group"

# A commit counts for the messages before it, except for those that an earlier one was past; so it
# may count instead of later ones, which the table has already.
_PASSED: Final = f"""
with fresh as (
    select
        p.raft_group, p.consumer_group, p.topic, p.topic_life, p.queue,
        max(p.offset) as high, min(p.time) as since, min(p.index) as first_index
    from new_consumer_progress p
    where p.offset is not null and p.source = 'committed' and p.time is not null
    group by p.raft_group, p.consumer_group, p.topic, p.topic_life, p.queue
),
passed as (
    select
        f.raft_group, f.topic, f.topic_life, f.queue,
        max(case when o.time <= f.since then o.offset end) as low,
        greatest(
            f.high, coalesce(max(case when o.time > f.since then o.offset end), f.high)
        ) as high
    from fresh f
    left join all_consumer_progress o
        {_READER.format(one="o", other="f")}
        and o.index < f.first_index and o.source = 'committed'
    group by f.raft_group, f.consumer_group, f.topic, f.topic_life, f.queue, f.high
)
{_STORED}
union
select q.raft_group, unix_millis(q.minute) as place
from {QUEUE_MINUTES} q
join passed p
    {_QUEUE.format(one="q", other="p")}
    and q.first_offset < p.high and q.last_offset >= coalesce(p.low, q.last_offset)
union
select q.raft_group, unix_millis(q.minute) as place
from {QUEUE_MINUTES} q
join new_pop_events e
    {_QUEUE.format(one="q", other="e")}
    and e.offset between q.first_offset and q.last_offset
where e.event = 'acknowledged'
"""


def _latency_views(engine: Engine, where: Touched) -> dict[str, str]:
    """Return the messages of some minutes, the acknowledgements of these, the commits past the
    first of them, those behind these, and those right before.
    """
    offsets = f"""
        select
            q.raft_group, q.topic, q.topic_life, q.queue,
            min(q.first_offset) as low, max(q.last_offset) as high
        from ({rows_in(QUEUE_MINUTES, "minute", where, time_of)}) q
        group by q.raft_group, q.topic, q.topic_life, q.queue
    """
    commits = """
        select p.* from all_consumer_progress p
        where p.source = 'committed' and p.offset is not null and p.time is not null
    """
    key = "p.raft_group, p.consumer_group, p.topic, p.topic_life, p.queue"
    firsts = f"""
        select {key}, min(p.time) as since
        from ({commits}) p
        join ({offsets}) l {_QUEUE.format(one="l", other="p")} and p.offset > l.low
        group by {key}
    """
    begins = f"""
        select {key}, coalesce(max(case when p.time < f.since then p.time end), f.since) as since
        from ({commits}) p
        join ({firsts}) f {_READER.format(one="f", other="p")}
        group by {key}, f.since
    """
    progress = f"""
        select p.* from ({commits}) p
        join ({begins}) b {_READER.format(one="b", other="p")} and p.time >= b.since
    """
    acknowledged = f"""
        select e.* from all_pop_events e
        join ({offsets}) l
            {_QUEUE.format(one="l", other="e")} and e.offset between l.low and l.high
        where e.event = 'acknowledged'
    """
    return {
        **_stored_in(engine, where),
        "consumer_progress": progress,
        "pop_events": acknowledged,
    }


# A row depends on how far the log's time has come if its minute was not over by then.
_MOVED: Final = f"""
{_STORED}
union
select p.raft_group, unix_millis(p.time) as place
from new_consumer_progress p
where p.time is not null
union
select p.raft_group, unix_millis(p.time) as place
from new_pop_progress p
where p.time is not null
union
select o.raft_group, unix_millis(o.time) as place
from old_now o
join (select distinct n.raft_group from new_entries n) n
    on n.raft_group is not distinct from o.raft_group
"""
_NOW: Final = """
select t.raft_group, unix_millis(max(t.time)) as ms
from (
    select o.raft_group, o.time from old_now o
    union all select m.raft_group, m.store_time from new_messages m
    union all select c.raft_group, c.time from new_commands c
    union all select e.raft_group, e.time from new_pop_events e
) t
where t.time is not null
group by t.raft_group
"""


def _lag_views(engine: Engine, where: Touched) -> dict[str, str]:
    """Return the facts from a minute on, and the state of each group and queue at its beginning."""
    for table in ("consumer_progress", "pop_progress"):
        engine.define(f"{table}_since", _progress_since(f"all_{table}", where))
    before = before_all(where)
    queues = rows_in(QUEUE_MINUTES, "minute", before, time_of)
    waiting = f"""
        from (
            select p.raft_group, p.topic, p.topic_life, p.queue, p.offset
            from consumer_progress_since p
            union
            select p.raft_group, p.topic, p.topic_life, p.queue, p.offset
            from pop_progress_since p
        ) p
        join ({queues}) q
            {_QUEUE.format(one="q", other="p")}
            and p.offset between q.first_offset and q.last_offset
    """
    places = engine.query(f"select distinct p.raft_group, unix_millis(q.minute) as place {waiting}")
    columns = (places.column(at).to_pylist() for at in range(2))
    minutes = touched(zip(*columns, strict=True), MINUTE_MS)
    # The largest offset of each queue, its last minute, and messages that wait.
    messages = f"""
        select m.raft_group, m.topic, m.topic_life, m.queue, m.offset, m.index, m.store_time
        from ({rows_in("all_messages", "store_time", where, time_of)}) m
        union all
        select * from (
            select
                q.raft_group, q.topic, q.topic_life, q.queue, max(q.last_offset) as offset,
                cast(null as bigint) as index, max_by(q.last_time, q.last_offset) as store_time
            from ({queues}) q
            group by q.raft_group, q.topic, q.topic_life, q.queue
            union
            select
                q.raft_group, q.topic, q.topic_life, q.queue,
                max_by(q.last_offset, q.minute) as offset, cast(null as bigint) as index,
                max(q.last_time) as store_time
            from ({queues}) q
            group by q.raft_group, q.topic, q.topic_life, q.queue
            union
            select m.raft_group, m.topic, m.topic_life, m.queue, m.offset, m.index, m.store_time
            from ({rows_in("all_messages", "store_time", minutes, time_of)}) m
            join (
                select distinct p.raft_group, p.topic, p.topic_life, p.queue, p.offset {waiting}
            ) w {_QUEUE.format(one="w", other="m")} and w.offset = m.offset
            where {inside("m.store_time", before, time_of, "m.raft_group")}
        ) b
    """
    return {
        "messages": messages,
        "consumer_progress": "select * from consumer_progress_since",
        "pop_progress": "select * from pop_progress_since",
        "pop_events": "select n.raft_group, n.time from new_pop_events n",
        "commands": "select n.raft_group, n.time from new_commands n "
        "union all select o.raft_group, o.time from old_now o",
    }


def _progress_since(table: str, where: Touched) -> str:
    """Return the query for steps from a minute on, and of each reader the last ones before: that
    of the log's order, and that of the last minute.
    """
    before = rows_in(table, "time", before_all(where), time_of)
    key = "p.raft_group, p.consumer_group, p.topic, p.topic_life, p.queue"
    return f"""
        {rows_in(table, "time", where, time_of)}
        union all
        select p.* from ({before}) p
        join (
            select
                {key}, max(p.last_index) as last_index,
                max_by(p.last_index, p.minute) as end_index
            from (
                select {key}, date_trunc('minute', p.time) as minute, max(p.index) as last_index
                from ({before}) p
                group by {key}, date_trunc('minute', p.time)
            ) p
            group by {key}
        ) l
            {_READER.format(one="l", other="p")} and p.index in (l.last_index, l.end_index)
    """


# --- by the time of the first of some steps -------------------------------------------------------


_RETRIED: Final = ("raft_group", "consumer_group", "topic", "origin_message_id")
_POPPED: Final = ("raft_group", "consumer_group", "topic", "topic_life", "queue", "offset")


# The messages that new facts are about.
_CONCERNED: Final = f"""
select n.* from new_messages n
union all
select m.* from all_messages m
join (
    select distinct c.raft_group, c.index
    from (
        select m.raft_group, m.index from all_messages m
        join new_delay_events e
            on e.position = m.physical_offset and e.raft_group is not distinct from m.raft_group
        union all
        select m.raft_group, m.index from all_messages m
        join new_redrives e {_QUEUE.format(one="e", other="m")} and e.offset = m.offset
        union all
        select m.raft_group, m.index from all_messages m
        join (select distinct e.raft_group, e.topic, e.topic_life, e.queue, e.offset
              from new_pop_events e) e
            {_QUEUE.format(one="e", other="m")} and e.offset = m.offset
    ) c
) c on c.index = m.index and c.raft_group is not distinct from m.raft_group
left join (select n.raft_group, n.index from new_messages n) n
    on n.index = m.index and n.raft_group is not distinct from m.raft_group
where n.index is null
"""
_CONCERNED_POPS: Final = f"""
select e.* from all_pop_events e
join (
    select distinct m.raft_group, m.topic, m.topic_life, m.queue, m.offset from ({_CONCERNED}) m
) c {_QUEUE.format(one="c", other="e")} and c.offset = e.offset
"""


def _of_retries(_engine: Engine, where: Touched) -> dict[str, str]:
    """Return all since the first place, and the messages that were popped since then."""
    pops = _since("all_pop_events", "time", where)
    before = inside("m.store_time", before_all(where), time_of, "m.raft_group")
    messages = f"""
        {_since("all_messages", "store_time", where)}
        union all
        select m.* from all_messages m
        join (
            select distinct e.raft_group, e.topic, e.topic_life, e.queue, e.offset from ({pops}) e
        ) e {_QUEUE.format(one="e", other="m")} and e.offset = m.offset
        where {before}
    """
    return {"messages": messages, "pop_events": pops}


def _first_times(table: str, key: Iterable[str]) -> str:
    """Return the query for the first times of keys with new steps, in the new rows and the old."""
    return f"""
        with steps as (select {", ".join(f"n.{one}" for one in (*key, "first_time"))} from fresh n)
        select n.raft_group, unix_millis(n.first_time) as place from steps n
        union
        select o.raft_group, unix_millis(o.first_time) as place
        from old_{table} o join steps n on {_same(key, "o", "n")}
    """


def _since(table: str, column: str, where: Touched) -> str:
    """Return the query for all rows since the first place of each group, and those without time."""
    ranges = from_first(where).ranges
    all_groups = frozenset({*ranges, *where.without})
    return rows_in(table, column, Touched(ranges, all_groups), time_of)


# --- by place in the log --------------------------------------------------------------------------


def _of_transactions(_engine: Engine, where: Touched) -> dict[str, str]:
    return {
        "transaction_events": rows_in("all_transaction_events", "position", where),
        "messages": rows_in("all_messages", "physical_offset", where),
    }


def _of_delays(_engine: Engine, where: Touched) -> dict[str, str]:
    events = rows_in("all_delay_events", "position", where)
    columns = "m.raft_group, m.index, m.physical_offset, m.topic, m.unique_key, m.store_time"
    first = rows_in("all_messages", "physical_offset", where)
    delivered = f"select e.raft_group, e.index from ({events}) e where e.event = 'delivered'"
    messages = f"""
        select {columns}, m.properties from ({first}) m
        union all
        select {columns}, m.properties
        from all_messages m
        join (select distinct d.raft_group, d.index from ({delivered}) d) d
            on d.index = m.index and d.raft_group is not distinct from m.raft_group
        where not coalesce({inside("m.physical_offset", where, group_column="m.raft_group")}, false)
    """
    return {"delay_events": events, "messages": messages}


def _of_dead_letters(_engine: Engine, where: Touched) -> dict[str, str]:
    buried = f"""
        select e.* from ({rows_in("all_pop_events", "index", where)}) e where e.event = 'buried'
    """
    key = "e.raft_group, e.consumer_group, e.topic, e.topic_life, e.queue, e.offset"
    return {
        "messages": rows_in("all_messages", "index", where),
        "pop_events": f"""
            select e.* from ({buried}) e
            union all
            select e.* from all_pop_events e
            join (select distinct {key} from ({buried}) e) b
                {_READER.format(one="b", other="e")} and b.offset = e.offset
            where e.event = 'given'
        """,
    }


_DEAD: Final = """
select n.raft_group, n.index as place from new_messages n where substr(n.topic, 1, 5) = '%DLQ%'
union
select o.raft_group, o.index as place
from old_dead_letters o
join new_redrives r
    on r.topic = concat('%DLQ%', o.consumer_group) and r.queue = o.queue and r.offset = o.offset
    and r.raft_group is not distinct from o.raft_group
"""

# The table of elections is not here: its rows so far and those of new entries are added up.
INCREMENTS: Final[Mapping[str, Increment]] = {
    QUEUE_MINUTES: Increment("minute", MINUTE_MS, _STORED, _stored_in, time_of),
    "traffic": Increment("minute", MINUTE_MS, _STORED, _stored_in, time_of),
    "consumer_lag": Increment("minute", MINUTE_MS, _MOVED, _lag_views, time_of, to_the_end=True),
    "latency": Increment("minute", MINUTE_MS, _PASSED, _latency_views, time_of),
    "hot_keys": Increment("since", 10 * MINUTE_MS, _STORED, _stored_in, time_of),
    "retries": Increment(
        "first_time",
        MINUTE_MS,
        _first_times("retries", _RETRIED),
        _of_retries,
        time_of,
        key=_RETRIED,
        concerned={
            "messages": _CONCERNED,
            "pop_events": _CONCERNED_POPS,
            "delay_events": "select * from all_delay_events",
            "redrives": "select * from all_redrives",
        },
    ),
    "pops": Increment(
        "first_time",
        MINUTE_MS,
        _first_times("pops", _POPPED),
        lambda _engine, where: {"pop_events": _since("all_pop_events", "time", where)},
        time_of,
        key=_POPPED,
    ),
    "dead_letters": Increment("index", INDEXES, _DEAD, _of_dead_letters),
    "transactions": Increment(
        "position",
        POSITIONS,
        "select n.raft_group, n.position as place from new_transaction_events n",
        _of_transactions,
    ),
    "delays": Increment(
        "position",
        POSITIONS,
        "select n.raft_group, n.position as place from new_delay_events n",
        _of_delays,
    ),
    "audit": Increment(
        "index",
        INDEXES,
        "select n.raft_group, n.index as place from new_commands n where n.name = 'audit request'",
        lambda _engine, where: {"commands": rows_in("all_commands", "index", where)},
    ),
}

_ADDED_UP: Final = "elections"
_TO_NOW: Final = "consumer_lag"
Nows = Mapping[str | None, int]


class Change(NamedTuple):
    """A change of a table.

    Attributes:
        sql: the query for the new rows; None: nothing changes.
        where: the places whose rows they replace; None: all.
        nows: how far the time of each log has come, in milliseconds, if the table depends on it.
    """

    sql: str | None
    where: Touched | None
    nows: Nows


def change_of(
    engine: Engine,
    table: str,
    begins: Mapping[str | None, int] | None,
    ends: Mapping[str | None, int],
    nows: Nows,
) -> Change:
    """Return what the facts change in a table, of which those before `begins` are in it.

    `begins` and `ends` are indexes, by group; with None the whole table is new. `nows` is that of
    the change before. The query of the change is good until the next call. Raises QueryFailed.
    """
    text = query(table)
    if table == _TO_NOW:
        _define_now(engine, nows)
        _see_new(engine, f"{text} {_MOVED}", begins or {}, ends)
        found = engine.query(_NOW)
        columns = (found.column(at).to_pylist() for at in range(2))
        nows = dict(zip(*columns, strict=True))
    if table == _ADDED_UP:
        _see_new(engine, text, begins or {}, ends)
        if begins is None:
            return Change(text, None, nows)
        engine.define("fresh", text)
        return Change(query(f"{table}_merged"), None, nows)
    if begins is None:
        _see(engine, text, {})
        return Change(text, None, nows)
    increment = INCREMENTS[table]
    needed = f"{text} {increment.places} {' '.join(increment.concerned.values())}"
    _see_new(engine, needed, begins, ends)
    if increment.concerned:
        _see(engine, text, increment.concerned)
    engine.define("fresh", text)
    units = engine.query(increment.units)
    columns = (units.column(at).to_pylist() for at in range(2))
    where = increment.touched(zip(*columns, strict=True))
    if not where:
        return Change(None, where, nows)
    _see(engine, text, increment.views(engine, where))
    return Change(increment.rows(table, text, where), where, nows)


def _define_now(engine: Engine, nows: Nows) -> None:
    rows = [
        f"select {text_of(group)} as raft_group, {time_of(now)} as time"
        for group, now in nows.items()
    ]
    none = f"select {text_of(None)} as raft_group, {time_of(0)} as time where false"
    engine.define("old_now", " union all ".join(rows) or none)


def _see_new(
    engine: Engine,
    text: str,
    begins: Mapping[str | None, int],
    ends: Mapping[str | None, int],
) -> None:
    """Let a query see only those facts that the table lacks: without `begins` all, in one query, as
    engines open each file for each group's query.
    """
    for table in FACTS:
        if table in text:
            queries = [
                f"select * from all_{table} where {is_group(group)} "
                f"and index >= {begins.get(group, 0)} and index < {end}"
                for group, end in ends.items()
                if begins.get(group) != end
            ]
            none = f"select * from all_{table} where false"
            new = (" union all ".join(queries) or none) if begins else f"select * from all_{table}"
            engine.define(f"new_{table}", new)
            engine.define(table, f"select * from new_{table}")


def _see(engine: Engine, text: str, views: Mapping[str, str]) -> None:
    """Let a query see the facts of some views; of other tables all."""
    for table in FACTS:
        if table in text:
            engine.define(table, views.get(table, f"select * from all_{table}"))
