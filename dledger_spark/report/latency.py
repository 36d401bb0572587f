"""The times of messages: to the store, and from there to the commits of each group."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import child, note
from dledger.pages.scale import LogScale
from dledger.pages.sheet import legend
from dledger_spark.report.plot import Plot, picture
from dledger_spark.report.quantity import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, count, duration
from dledger_spark.report.section import section
from dledger_spark.report.span import Span, Steps
from dledger_spark.tables.engine import Engine

GROUPS_MAX: Final = 4
_ENDS: Final = {"committed": "commit", "acknowledged": "acknowledgement"}
_HEIGHT: Final = 120.0
_LEAST_MS: Final = 1000
# The clocks of brokers and clients count milliseconds, so shorter times are unknown.
_FLOOR_MS: Final = 1.0
_MARKS_MS: Final = (
    *(_FLOOR_MS, 10.0, 100.0, SECOND_MS, 10 * SECOND_MS, MINUTE_MS, 10 * MINUTE_MS),
    *(HOUR_MS, 10 * HOUR_MS, DAY_MS * 10, DAY_MS * 100),
)


def draw_latency(body: Element, engine: Engine, span: Span) -> None:
    """Draw the section below `body`. Raises QueryFailed."""
    part = section(body, "latency", "Latency")
    steps = span.steps(_LEAST_MS)
    stored = engine.query(stored_query(steps)).to_pylist()
    consumed = engine.query(consumed_query(steps)).to_pylist()
    if not stored and not consumed:
        note(part, "No message says when it was born, and no group has consumed any.")
        return
    legend(part, [("p50", "median"), ("p99", "99th percentile")])
    note(part, f"Of the messages stored in each {duration(steps.step_ms)}.")
    if stored:
        child(part, "h3", "From the producer to the store")
        _draw(part, stored, steps, span)
        early = stored[0]["early"]
        if early:
            text = f"{count(early)} messages were stored before they were born: clocks differ."
            note(part, text)
    else:
        note(part, "No message says when it was born.")
    if any(row["kind"] == "committed" for row in consumed):
        note(
            part,
            "Clients commit every 5 s what they consumed, so a group consumed a message up to 5 s "
            "before its commit.",
        )
    for (name, kind), rows in groupby(consumed, lambda row: (row["consumer_group"], row["kind"])):
        child(part, "h3", f"From the store to the {_ENDS[kind]} of {name[:300]}")
        _draw(part, list(rows), steps, span)
    if not consumed:
        note(part, "No group has consumed a message.")
    elif consumed[0]["groups"] > GROUPS_MAX:
        left = count(consumed[0]["groups"] - GROUPS_MAX)
        note(part, f"{left} more consumer groups were quicker.")


def _draw(part: Element, rows: Sequence[dict[str, Any]], steps: Steps, span: Span) -> None:
    whole = next(row for row in rows if row["step"] is None)
    note(
        part,
        f"{count(whole['messages'])} messages: median {duration(whole['p50'])}, "
        f"99 % within {duration(whole['p99'])}, at most {duration(whole['most'])}.",
    )
    lines: dict[str, list[float | None]] = {name: [None] * steps.number for name in ("p50", "p99")}
    for row in rows:
        if row["step"] is not None:
            for name, line in lines.items():
                line[row["step"]] = max(_FLOOR_MS, row[name])
    values = [value for line in lines.values() for value in line if value is not None]

    def draw(plot: Plot) -> None:
        scale = LogScale.between(_MARKS_MS, min(values), max(values), _HEIGHT, 8.0)
        plot.lines(scale, duration)
        plot.axis(8.0, _HEIGHT)
        for name in ("p99", "p50"):
            plot.line(steps, lines[name], scale, name)

    picture(part, "latency over time: median and 99th percentile", _HEIGHT, span, draw)


_FIGURES: Final = """
    count(*) as messages,
    cast(quantile_disc(t.ms, 0.5) as double) as p50,
    cast(quantile_disc(t.ms, 0.99) as double) as p99,
    max(t.ms) as most
"""


def stored_query(steps: Steps) -> str:
    """Return the query for times to the store: a row for each step, and one without a step for all.

    A copy of a message (of a delay, a transaction, a retry, a dead letter) has the birth time of
    the first one and is stored later, so only first ones count.
    """
    return f"""
    with copies as (
        select d.raft_group, d.index from delay_events d where d.event <> 'waits'
        union
        select t.raft_group, t.index from transaction_events t where t.event <> 'prepared'
        union
        select r.raft_group, r.index from redrives r
    ),
    took as (
        select
            {steps.of("m.store_time")} as step,
            epoch_ms(m.store_time) - epoch_ms(m.born_time) as ms
        from messages m
        left join copies c
            on c.index = m.index and c.raft_group is not distinct from m.raft_group
        where m.store_time is not null and m.born_time is not null and c.index is null
            and substr(m.topic, 1, 7) <> '%RETRY%' and substr(m.topic, 1, 5) <> '%DLQ%'
            and m.reconsume_times = 0
    )
    select t.step, {_FIGURES}, sum(count(*) filter (t.ms < 0)) over () // 2 as early
    from took t
    group by grouping sets ((t.step), ())
    having count(*) > 0
    order by t.step
    """


def consumed_query(steps: Steps) -> str:
    """Return the same for times from the store to progress, of the groups with the longest 99th
    percentile.

    They end as in the table of latencies: when a commit first passes the message, or when a group
    that pops acknowledges it. Resets by an administrator do not count.
    """
    return f"""
    with passed as (
        select
            coalesce(p.raft_group, '') as log, p.consumer_group, p.topic, p.topic_life as life,
            p.queue, p.offset as reached, min(epoch_ms(p.time)) as ms
        from consumer_progress p
        where p.offset is not null and p.source = 'committed' and p.time is not null
        group by all
    ),
    earliest as (
        select
            v.* exclude (ms),
            min(v.ms) over (
                partition by v.log, v.consumer_group, v.topic, v.life, v.queue
                order by v.reached desc
                rows between unbounded preceding and current row
            ) as ms
        from passed v
    ),
    readers as (
        select distinct v.log, v.consumer_group, v.topic, v.life, v.queue from passed v
    ),
    wanted as (
        select
            r.log, r.consumer_group, r.topic, r.life, r.queue, m.offset as at,
            {steps.of("m.store_time")} as step, epoch_ms(m.store_time) as ms
        from readers r
        join messages m
            on m.topic = r.topic and m.topic_life = r.life and m.queue = r.queue
            and coalesce(m.raft_group, '') = r.log
        where m.store_time is not null
    ),
    acknowledged as (
        select
            e.raft_group, e.consumer_group, e.topic, e.topic_life, e.queue, e.offset,
            min(epoch_ms(e.time)) as ms
        from pop_events e
        where e.event = 'acknowledged' and e.time is not null
        group by all
    ),
    took as (
        select
            a.consumer_group, 'acknowledged' as kind, {steps.of("m.store_time")} as step,
            greatest(a.ms - epoch_ms(m.store_time), 0) as ms
        from acknowledged a
        join messages m
            on m.topic = a.topic and m.topic_life = a.topic_life and m.queue = a.queue
            and m.offset = a.offset and m.raft_group is not distinct from a.raft_group
        where m.store_time is not null
        union all
        select w.consumer_group, 'committed' as kind, w.step, greatest(e.ms - w.ms, 0) as ms
        from wanted w
        asof join earliest e
            on e.log = w.log and e.consumer_group = w.consumer_group and e.topic = w.topic
            and e.life = w.life and e.queue = w.queue and e.reached > w.at
    ),
    told as (
        select t.consumer_group, t.kind, t.step, {_FIGURES}
        from took t
        group by grouping sets ((t.consumer_group, t.kind, t.step), (t.consumer_group, t.kind))
    ),
    places as (
        select
            o.consumer_group, o.kind,
            row_number() over (order by o.p99 desc, o.consumer_group, o.kind) as place,
            count(*) over () as groups
        from told o
        where o.step is null
    )
    select o.*, p.groups
    from told o
    join places p using (consumer_group, kind)
    where p.place <= {GROUPS_MAX}
    order by p.place, o.step
    """
