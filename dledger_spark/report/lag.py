"""The messages that consumer groups have not consumed, by queue and time."""

from bisect import bisect_right
from functools import partial
from itertools import groupby
from typing import Any, Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import child, note, number
from dledger.pages.scale import Scale
from dledger.pages.sheet import legend
from dledger.pages.table import Column, draw_table
from dledger_spark.report.plot import Plot, picture
from dledger_spark.report.quantity import (
    MINUTE_MS,
    clock,
    count,
    cut,
    day,
    duration,
    moment,
    short,
)
from dledger_spark.report.section import named, section
from dledger_spark.report.span import NOW, Span, Steps
from dledger_spark.tables.engine import Engine

GROUPS_MAX: Final = 6
QUEUES_MAX: Final = 24
# The queues of a group that are listed by what waits in them at the end.
LISTED_MAX: Final = 5
# Groups commit their progress every five seconds, so shorter steps would only show the commits.
_LEAST_MS: Final = 5000
_ROW: Final = 15.0
_HEIGHT: Final = 84.0
# The least lag of each colour.
_CLASSES: Final = (1, 10, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
# Lag grows or shrinks if it changes by a tenth, and else stays for so many steps: it goes up and
# down with each commit.
_SAME_STEPS: Final = 3
_COLUMNS: Final = (*(Column("queue", "text"), Column("behind"), Column("the first waits for")),)


def lag_steps(span: Span) -> Steps:
    return span.steps(_LEAST_MS)


def lag_rows(engine: Engine, span: Span) -> list[dict[str, Any]]:
    """Return the rows of `lag_query`. Raises QueryFailed."""
    return list(engine.query(lag_query(lag_steps(span))).to_pylist())


def queues_behind(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """Return, by group, the queues in which most waits at the end. Raises QueryFailed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in engine.query(_QUEUES_BEHIND).to_pylist():
        found.setdefault(row["consumer_group"], []).append(row)
    return found


def draw_lag(
    body: Element,
    engine: Engine,
    span: Span,
    rows: list[dict[str, Any]] | None = None,
) -> None:
    """Draw the section below `body`. `rows` are from `lag_rows`. Raises QueryFailed."""
    part = section(body, "lag", "Consumer lag")
    steps = lag_steps(span)
    rows = lag_rows(engine, span) if rows is None else rows
    if not rows:
        note(part, "No consumer group has committed progress in a queue.")
        return
    groups = rows[0]["groups"]
    behind = [row for row in rows if row["most"]]
    if not behind:
        note(part, f"Of {count(groups)} consumer groups none was behind at the end of a step.")
        return
    words = [(f"h{at + 1}", f"from {count(least)}") for at, least in enumerate(_CLASSES)]
    note(
        part,
        f"Messages that a group had not consumed at the end of each {duration(steps.step_ms)}, as "
        "far as it had committed or acknowledged them: of all its queues, and below of each queue "
        "by colour. The group that is most behind at the end comes first.",
    )
    legend(part, [("none", "none"), *words])
    listed = queues_behind(engine)
    shown = 0
    for _, of_group in groupby(behind, lambda row: row["group_place"]):
        _draw_group(part, list(of_group), steps, span, listed)
        shown += 1
    if groups > shown:
        left = count(groups - shown)
        note(part, f"{left} more consumer groups were less behind, or not at all.")


def anchor_of(group: dict[str, Any], queue: int | None = None) -> str:
    """Return the anchor of a group, or of one of its listed queues, by their places."""
    whole = f"lag-{group['group_place']}"
    return whole if queue is None else f"{whole}-{queue}"


def trend(group: dict[str, Any], steps: Steps) -> str:
    """Say since when the lag of a group grows, by a row of `lag_query`."""
    if not group["last"]:
        return "caught up"
    if group["is_growing"]:
        return f"growing since {_at(steps, group['low_step'] + 1)}"
    if group["higher_step"] is None:
        return "so since it is known"
    if steps.number - 1 - group["higher_step"] >= _SAME_STEPS:
        return f"about the same since {_at(steps, group['higher_step'] + 1)}"
    return "shrinking"


def _at(steps: Steps, step: int) -> str:
    """Return the time of the day, with the date if it is not that of the end."""
    ms, end_ms = steps.begin(step), steps.begin(steps.number)
    written = clock(ms, with_seconds=steps.step_ms < MINUTE_MS)
    return written if day(ms) == day(end_ms) else f"{day(ms)} {written}"


def queue_name(row: dict[str, Any], *, is_of_several: bool) -> str:
    log = f"{row['log']} " if is_of_several else ""
    again = f", life {row['life'] + 1}" if row["life"] else ""
    return f"{log}{row['topic']} {row['queue']}{again}"


def _draw_group(
    part: Element,
    cells: list[dict[str, Any]],
    steps: Steps,
    span: Span,
    listed: dict[str, list[dict[str, Any]]],
) -> None:
    first = cells[0]
    child(part, "h3", first["consumer_group"][:300], id=anchor_of(first))
    oldest = first["oldest_ms"]
    age = f", the first of them stored {duration(oldest)} before" if oldest is not None else ""
    now = f"{count(first['last'])} behind at the end, {trend(first, steps)}{age}. "
    note(
        part,
        f"{now if first['last'] else 'Caught up. '}At most {count(first['most'])} "
        f"({moment(steps.begin(first['most_step']))} UTC).",
    )
    queues = [
        list(of_queue)
        for _, of_queue in groupby(
            sorted(cells, key=lambda one: (one["topic"], one["life"], one["queue"], one["log"])),
            lambda one: (one["topic"], one["life"], one["queue"], one["log"]),
        )
    ]

    # Each group of brokers has queues with the same numbers in its log.
    is_of_several = len({queue[0]["log"] for queue in queues}) > 1
    whole = [0.0] * steps.number
    for cell in cells:
        whole[cell["step"]] = float(cell["group_lag"])
    top = _HEIGHT + 6

    def draw(plot: Plot) -> None:
        scale = Scale(0.0, max(whole), _HEIGHT, 8.0)
        plot.area(steps, [0.0] * steps.number, whole, scale, "c1")
        for tick in scale.ticks(4):
            plot.sheet.line(plot.svg, scale.at(tick))
            plot.name(short(tick), scale.at(tick) + 4, "tick")
        for at, queue in enumerate(queues):
            log = f"{queue[0]['log']} " if is_of_several else ""
            _draw_queue(plot, queue, top + at * _ROW, steps, log)
        plot.axis(8.0, top + len(queues) * _ROW)

    name = f"lag of the consumer group {first['consumer_group']}, by queue and time"
    picture(part, name[:300], top + len(queues) * _ROW, span, draw)
    if first["queues"] > len(queues):
        left = count(first["queues"] - len(queues))
        note(part, f"{left} more of its queues were less behind, or not at all.")
    _list_queues(part, first, listed.get(first["consumer_group"], []))


def _age(ms: int | None) -> str:
    """Retention may have removed a message before the log was read."""
    return "unknown" if ms is None else duration(ms)


def _list_queues(part: Element, group: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """List the queues in which messages wait at the end."""
    if not rows:
        return
    is_of_several = len({row["log"] for row in rows}) > 1

    def name(cell: Element, row: dict[str, Any]) -> None:
        cell.set("id", anchor_of(group, row["place"]))
        named(cell, queue_name(row, is_of_several=is_of_several))

    draw_table(
        part,
        _COLUMNS,
        [[partial(name, row=row), count(row["behind"]), _age(row["oldest_ms"])] for row in rows],
    )
    if rows[0]["queues"] > len(rows):
        note(part, f"Messages wait in {count(rows[0]['queues'] - len(rows))} more of its queues.")


def _draw_queue(
    plot: Plot, cells: list[dict[str, Any]], top: float, steps: Steps, log: str
) -> None:
    first = cells[0]
    # A topic that was deleted and made again has other queues than before.
    again = f", life {first['life'] + 1}" if first["life"] else ""
    which = f" {first['queue']}{again}"
    topic = cut(f"{log}{first['topic']}", max(3, plot.letters - len(which)))
    plot.name(f"{topic}{which}", top + _ROW - 4)
    whole = f"{log}{first['topic'][:300]}{which}"
    back = plot.rect(steps.begin_ms, steps.begin(steps.number), top + 1, _ROW - 2, "empty")
    child(back, "title", whole)
    worst = max(cells, key=lambda one: one["lag"])
    # Steps of one colour that follow one another are one rectangle: the page stays small.
    runs: list[list[int]] = []
    for cell in sorted((cell for cell in cells if cell["lag"]), key=lambda one: one["step"]):
        class_, step = bisect_right(_CLASSES, cell["lag"]), cell["step"]
        if runs and runs[-1][0] == class_ and runs[-1][2] == step:
            runs[-1][2] = step + 1
        else:
            runs.append([class_, step, step + 1])
    paths: dict[int, list[str]] = {}
    for class_, begin, end in runs:
        left, right = plot.x(steps.begin(begin)), plot.x(steps.begin(end))
        width = number(max(0.5, right - left - 0.4))
        paths.setdefault(class_, []).append(
            f"M{number(left)} {number(top + 1)}h{width}v{number(_ROW - 2)}h-{width}z"
        )
    for class_, path in sorted(paths.items()):
        one = child(plot.svg, "path", d="".join(path), class_=f"h{class_}")
        most = f"at most {count(worst['lag'])} ({moment(steps.begin(worst['step']))} UTC)"
        child(one, "title", f"{whole}: {most}")


def _growths(steps: Steps) -> str:
    """Return the tables of a query that tell how the lag of each group has grown.

    To find since when the lag grows, steps before the last one at which it was a tenth larger than
    at the end do not count: behind it is the last step with the least lag.
    """
    last = steps.number - 1
    return f"""
    sums as materialized (
        select l.consumer_group, l.step, cast(sum(l.lag) as bigint) as lag from lags l group by all
    ),
    ages as (
        select c.consumer_group, min(epoch_ms(c.waiting_since)) as since_ms
        from ({_BEHIND}) c
        group by c.consumer_group
    ),
    lasts as (
        select s.consumer_group, max(s.lag) filter (s.step = {last}) as last
        from sums s
        group by all
    ),
    higher as materialized (
        select
            s.consumer_group, coalesce(any_value(e.last), 0) as last,
            max(s.step) filter (s.lag * 10 > e.last * 11) as higher_step
        from sums s
        join lasts e using (consumer_group)
        group by s.consumer_group
    ),
    lows as (
        select
            h.consumer_group, min(s.lag) as low,
            max({{'less': -s.lag, 'step': s.step}}).step as low_step
        from sums s
        join higher h using (consumer_group)
        where s.step > coalesce(h.higher_step, -1)
        group by h.consumer_group
    )
    """


def lag_query(steps: Steps) -> str:
    """Return the query for the lag of the worst queues of the worst groups, and the groups'
    figures.

    Groups are ranked by their lag at the end, then by its growth, then by the largest lag ever.
    """
    return f"""
    with {_lags(steps)},
    {_growths(steps)},
    measured as (
        select
            s.consumer_group,
            max(s.lag) as most,
            arg_max(s.step, s.lag) as most_step,
            any_value(h.last) as last,
            any_value(h.higher_step) as higher_step,
            any_value(w.low_step) as low_step,
            any_value(w.low) * 10 < any_value(h.last) * 9 as is_growing,
            any_value(h.last) - any_value(w.low) as growth,
            any_value(a.since_ms) as since_ms,
            count(*) over () as groups
        from sums s
        join higher h using (consumer_group)
        left join lows w using (consumer_group)
        left join ages a using (consumer_group)
        group by s.consumer_group
    ),
    groups as (
        select
            m.* exclude (since_ms),
            ({NOW}) - m.since_ms as oldest_ms,
            count(*) filter (m.last > 0) over () as groups_behind,
            row_number() over (
                order by m.last desc, m.growth desc nulls last, m.most desc, m.consumer_group
            ) as group_place
        from measured m
    ),
    queues as (
        select
            l.log, l.consumer_group, l.topic, l.life, l.queue,
            row_number() over (
                partition by l.consumer_group
                order by max(l.lag) desc, l.topic, l.life, l.queue, l.log
            ) as queue_place,
            max(l.lag) as queue_most,
            count(*) over (partition by l.consumer_group) as queues
        from lags l
        group by l.log, l.consumer_group, l.topic, l.life, l.queue
    )
    select l.*, g.* exclude (consumer_group), q.queues, s.lag as group_lag
    from lags l
    join sums s using (consumer_group, step)
    join groups g using (consumer_group)
    join queues q using (log, consumer_group, topic, life, queue)
    where g.group_place <= {GROUPS_MAX} and q.queue_place <= {QUEUES_MAX}
        and (q.queue_most > 0 or g.most = 0)
    order by g.group_place, l.topic, l.life, l.queue, l.log, l.step
    """


# What waits at the end of each log: its last minute has a row for everything that waits.
_BEHIND: Final = """
    select c.*
    from consumer_lag c
    join (
        select t.raft_group, date_trunc('minute', max(t.time)) as minute
        from (
            select m.raft_group, max(m.store_time) as time from messages m group by all
            union all
            select c.raft_group, max(c.time) from commands c group by all
            union all
            select e.raft_group, max(e.time) from pop_events e group by all
        ) t
        group by all
    ) n on n.minute = c.minute and n.raft_group is not distinct from c.raft_group
    where c.lag_messages > 0
"""
_QUEUES_BEHIND: Final = f"""
    select
        c.consumer_group, coalesce(c.raft_group, '') as log, c.topic, c.topic_life as life, c.queue,
        c.lag_messages as behind, ({NOW}) - epoch_ms(c.waiting_since) as oldest_ms,
        row_number() over (
            partition by c.consumer_group
            order by c.lag_messages desc, c.topic, c.topic_life, c.queue, c.raft_group
        ) as place,
        count(*) over (partition by c.consumer_group) as queues
    from ({_BEHIND}) c
    qualify place <= {LISTED_MAX}
    order by c.consumer_group, place
"""


def _lags(steps: Steps) -> str:
    """Return the SQL for the lag of every queue and group at the end of each step.

    A queue's end and a group's progress are known at their changes, and stay until the next one.
    Progress is null after its topic was deleted.
    """
    of_queue = "partition by k.log, k.consumer_group, k.topic, k.life, k.queue"
    return f"""
    ends as (
        select
            coalesce(m.raft_group, '') as log, m.topic, m.topic_life as life, m.queue,
            {steps.of("m.store_time")} as step,
            max(m.offset) + 1 as queue_end
        from messages m
        where m.store_time is not null
        group by all
    ),
    moves as (
        select
            coalesce(p.raft_group, '') as log, p.consumer_group, p.topic, p.topic_life as life,
            p.queue, {steps.of("p.time")} as step,
            max({{'index': p.index, 'consumed': p.offset}}) as move
        from consumer_progress p
        where p.time is not null
        group by all
    ),
    pops as (
        select
            coalesce(o.raft_group, '') as log, o.consumer_group, o.topic, o.topic_life as life,
            o.queue, {steps.of("o.time")} as step,
            max({{'index': o.index, 'next': o.next_offset, 'given': o.unacknowledged}}) as pop
        from pop_progress o
        where o.time is not null
        group by all
    ),
    readers as (
        select distinct v.log, v.consumer_group, v.topic, v.life, v.queue from moves v
    ),
    grid as (
        select r.*, cast(s.step as bigint) as step
        from readers r
        cross join range({steps.number}) s(step)
    ),
    known as (
        select
            k.*,
            last_value(e.queue_end ignore nulls) over ({of_queue} order by k.step) as queue_end,
            last_value(v.move ignore nulls) over ({of_queue} order by k.step) as move,
            last_value(o.pop ignore nulls) over ({of_queue} order by k.step) as pop
        from grid k
        left join ends e using (log, topic, life, queue, step)
        left join moves v using (log, consumer_group, topic, life, queue, step)
        left join pops o using (log, consumer_group, topic, life, queue, step)
    ),
    lags as materialized (
        select
            k.* exclude (queue_end, move, pop),
            case
                when k.pop.next is null
                then greatest(coalesce(k.queue_end, 0) - k.move.consumed, 0)
                else k.pop.given + greatest(coalesce(k.queue_end, 0) - k.pop.next, 0)
            end as lag
        from known k
        where k.move.consumed is not null
    )
    """
