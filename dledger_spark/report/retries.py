"""How often messages were redelivered, and the dead letters."""

from itertools import groupby
from typing import Any, Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import child, note
from dledger_spark.report.quantity import count, share
from dledger_spark.report.section import Bar, bars, section
from dledger_spark.tables.engine import Engine

GROUPS_MAX: Final = 6
# After so many a message becomes a dead letter, by RocketMQ's default.
RETRIES_MAX: Final = 16


def draw_retries(body: Element, engine: Engine) -> None:
    """Draw the section below `body`. Raises QueryFailed."""
    part = section(body, "retries", "Retries and dead letters")
    rows = engine.query(_QUERY).to_pylist()
    if not rows:
        note(part, "No message came back to its group, and none died.")
        return
    note(
        part,
        "Messages that a consumer sent back or did not acknowledge in time, by how often they "
        "were delivered again. Copies of dead letters that an operator had delivered once more do "
        "not count.",
    )
    for _, of_group in groupby(rows, lambda row: row["place"]):
        _draw_group(part, list(of_group))
    groups = rows[0]["groups"]
    if groups > GROUPS_MAX:
        note(part, f"{count(groups - GROUPS_MAX)} more consumer groups have fewer of them.")


def _draw_group(part: Element, rows: list[dict[str, Any]]) -> None:
    first = rows[0]
    child(part, "h3", first["consumer_group"][:300])
    came = {row["retries"]: row["messages"] for row in rows if row["retries"]}
    funnel = [
        (retry, sum(messages for times, messages in came.items() if times >= retry))
        for retry in range(1, max(came, default=0) + 1)
    ]
    most = max([messages for _, messages in funnel] + [first["dead"], first["waiting"]])
    whole = funnel[0][1] if funnel else 0
    shown = [
        Bar(
            f"retry {retry}" if retry < RETRIES_MAX else f"retry {retry} or later",
            [(messages, "c1")],
            f"{count(messages)} ({share(messages, whole)})",
        )
        for retry, messages in funnel
    ]
    if first["waiting"]:
        waits = first["waiting"]
        shown.append(Bar("waiting for a retry", [(waits, "c4")], count(waits)))
    again = f", {count(first['redriven'])} of them delivered once more" if first["redriven"] else ""
    shown.append(Bar("dead", [(first["dead"], "bad")], f"{count(first['dead'])}{again}"))
    bars(part, shown, most)


_QUERY: Final = f"""
    with came as (
        select r.consumer_group, r.delivered_again as retries from retries r
        where r.delivered_again > 0
    ),
    waits as (
        select r.consumer_group, cast(sum(r.waiting) as bigint) as waiting
        from retries r
        group by r.consumer_group
    ),
    counted as (
        select c.consumer_group, least(c.retries, {RETRIES_MAX}) as retries, count(*) as messages
        from came c
        group by all
    ),
    died as (
        select d.consumer_group, count(*) as dead, count(d.redriven_time) as redriven
        from dead_letters d
        group by d.consumer_group
    ),
    names as (
        select consumer_group from counted
        union
        select consumer_group from died
        union
        select consumer_group from waits where waiting > 0
    ),
    all_groups as (
        select
            n.consumer_group,
            coalesce(any_value(d.dead), 0) as dead,
            coalesce(any_value(d.redriven), 0) as redriven,
            coalesce(any_value(w.waiting), 0) as waiting,
            coalesce(sum(c.messages), 0) as came_back
        from names n
        left join counted c on c.consumer_group = n.consumer_group
        left join died d on d.consumer_group = n.consumer_group
        left join waits w on w.consumer_group = n.consumer_group
        group by n.consumer_group
    ),
    places as (
        select
            g.*,
            row_number() over (order by g.dead desc, g.came_back desc, g.consumer_group) as place,
            count(*) over () as groups
        from all_groups g
    )
    select
        p.place, p.groups, p.consumer_group, p.dead, p.redriven, p.waiting,
        coalesce(c.retries, 0) as retries, coalesce(c.messages, 0) as messages
    from places p
    left join counted c using (consumer_group)
    where p.place <= {GROUPS_MAX}
    order by p.place, c.retries
"""
