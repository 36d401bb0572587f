"""The messages that consumer groups have not consumed, by queue and time."""

from bisect import bisect_right
from itertools import groupby
from typing import Any, Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import child, note, number
from dledger.pages.sheet import legend
from dledger_spark.report.plot import Plot, picture
from dledger_spark.report.quantity import count, cut, duration, moment
from dledger_spark.report.section import section
from dledger_spark.report.span import Span, Steps
from dledger_spark.tables.engine import Engine

GROUPS_MAX: Final = 6
QUEUES_MAX: Final = 24
# Groups commit their progress every five seconds, so shorter steps would only show the commits.
_LEAST_MS: Final = 5000
_ROW: Final = 15.0
# The least lag of each colour.
_CLASSES: Final = (1, 10, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)


def draw_lag(body: Element, engine: Engine, span: Span) -> None:
    """Draw the section below `body`. Raises QueryFailed."""
    part = section(body, "lag", "Consumer lag")
    steps = span.steps(_LEAST_MS)
    rows = engine.query(lag_query(steps)).to_pylist()
    if not rows:
        note(part, "No consumer group has committed progress in a queue.")
        return
    groups = rows[0]["groups"]
    behind = [row for row in rows if row["most"]]
    if not behind:
        note(part, f"Of {count(groups)} consumer groups none was behind at the end of a step.")
        return
    words = [(f"h{at + 1}", f"from {count(least)}") for at, least in enumerate(_CLASSES)]
    legend(part, [("none", "none"), *words])
    note(
        part,
        f"Messages that a group had not consumed at the end of each {duration(steps.step_ms)}, as "
        "far as it had committed its progress.",
    )
    shown = 0
    for _, of_group in groupby(behind, lambda row: row["group_place"]):
        _draw_group(part, list(of_group), steps, span)
        shown += 1
    if groups > shown:
        left = count(groups - shown)
        note(part, f"{left} more consumer groups were less behind, or not at all.")


def _draw_group(part: Element, cells: list[dict[str, Any]], steps: Steps, span: Span) -> None:
    first = cells[0]
    child(part, "h3", first["consumer_group"][:300])
    oldest = first["oldest_ms"]
    age = f", the first of them stored {duration(oldest)} before" if oldest else ""
    note(
        part,
        f"At most {count(first['most'])} messages behind ({moment(steps.begin(first['most_step']))}"
        f" UTC); {count(first['last'])} at the end{age}.",
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

    def draw(plot: Plot) -> None:
        for at, queue in enumerate(queues):
            log = f"{queue[0]['log']} " if is_of_several else ""
            _draw_queue(plot, queue, at * _ROW + 2, steps, log)
        plot.axis(2.0, len(queues) * _ROW + 2)

    name = f"lag of the consumer group {first['consumer_group']}, by queue and time"
    picture(part, name[:300], len(queues) * _ROW + 2, span, draw)
    if first["queues"] > len(queues):
        left = count(first["queues"] - len(queues))
        note(part, f"{left} more of its queues were less behind, or not at all.")


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
    paths: dict[int, list[str]] = {}
    worst = max(cells, key=lambda one: one["lag"])
    for cell in cells:
        if cell["lag"]:
            left, right = plot.x(steps.begin(cell["step"])), plot.x(steps.begin(cell["step"] + 1))
            width = number(max(0.5, right - left - 0.4))
            class_ = bisect_right(_CLASSES, cell["lag"])
            paths.setdefault(class_, []).append(
                f"M{number(left)} {number(top + 1)}h{width}v{number(_ROW - 2)}h-{width}z"
            )
    for class_, path in sorted(paths.items()):
        one = child(plot.svg, "path", d="".join(path), class_=f"h{class_}")
        most = f"at most {count(worst['lag'])} ({moment(steps.begin(worst['step']))} UTC)"
        child(one, "title", f"{whole}: {most}")


def lag_query(steps: Steps) -> str:
    """Return the query for the lag of the worst queues of the worst groups, and the groups'
    figures.

    A group is as bad as its place among the largest lags ever or among the largest at the end, so
    that old lags do not hide one that is behind now.
    """
    return f"""
    with {_lags(steps)},
    sums as (
        select l.consumer_group, l.step, sum(l.lag) as lag from lags l group by all
    ),
    ages as (
        -- A queue that has been quiet since has no later row, and its messages grow older.
        select
            c.consumer_group,
            arg_max(
                case
                    when c.lag_ms > 0
                    then c.lag_ms + greatest(l.ms - epoch_ms(c.minute) - 60000, 0)
                    else c.lag_ms
                end,
                c.minute
            ) as ms
        from consumer_lag c
        join lags b
            on b.log = coalesce(c.raft_group, '') and b.consumer_group = c.consumer_group
            and b.topic = c.topic and b.life = c.topic_life and b.queue = c.queue
        cross join (select max(epoch_ms(m.store_time)) as ms from messages m) l
        where b.step = {steps.number - 1} and b.lag > 0
        group by c.raft_group, c.consumer_group, c.topic, c.topic_life, c.queue
    ),
    measured as (
        select
            s.consumer_group,
            cast(max(s.lag) as bigint) as most,
            arg_max(s.step, s.lag) as most_step,
            cast(coalesce(max(s.lag) filter (s.step = {steps.number - 1}), 0) as bigint) as last,
            (select max(a.ms) from ages a where a.consumer_group = s.consumer_group) as oldest_ms,
            count(*) over () as groups
        from sums s
        group by s.consumer_group
    ),
    placed as (
        select
            m.*,
            row_number() over (order by m.most desc, m.consumer_group) as by_most,
            row_number() over (order by m.last desc, m.most desc, m.consumer_group) as by_last
        from measured m
    ),
    groups as (
        select
            p.* exclude (by_most, by_last),
            row_number() over (
                order by
                    case when p.last > 0 then least(p.by_most, p.by_last) else p.by_most end,
                    p.by_most
            ) as group_place
        from placed p
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
    select l.*, g.* exclude (consumer_group), q.queues
    from lags l
    join groups g using (consumer_group)
    join queues q using (log, consumer_group, topic, life, queue)
    where g.group_place <= {GROUPS_MAX} and q.queue_place <= {QUEUES_MAX}
        and (q.queue_most > 0 or g.most = 0)
    order by g.group_place, l.topic, l.life, l.queue, l.log, l.step
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
            last_value(v.move ignore nulls) over ({of_queue} order by k.step) as move
        from grid k
        left join ends e using (log, topic, life, queue, step)
        left join moves v using (log, consumer_group, topic, life, queue, step)
    ),
    lags as (
        select
            k.* exclude (queue_end, move),
            greatest(coalesce(k.queue_end, 0) - k.move.consumed, 0) as lag
        from known k
        where k.move.consumed is not null
    )
    """
