"""How transactions ended."""

from itertools import groupby
from typing import Any, Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import note
from dledger.pages.sheet import legend
from dledger.pages.table import Column
from dledger_spark.report.quantity import count, duration, moment, share
from dledger_spark.report.section import Bar, bars, section, table
from dledger_spark.tables.engine import Engine

GROUPS_MAX: Final = 8
OPEN_MAX: Final = 10
_OUTCOMES: Final = {"committed": "c2", "rolled back": "c4", "given up": "bad", "open": "c1"}
_COLUMNS: Final = (
    *(Column("outcome", "text"), Column("transactions"), Column("of all"), Column("median time")),
    *(Column("99 % within"), Column("at most"), Column("checks")),
)
_OPEN_COLUMNS: Final = (
    *(Column("producer group", "text"), Column("topic", "text"), Column("unique key", "text")),
    *(Column("since (UTC)", "when"), Column("checks")),
)


def draw_transactions(body: Element, engine: Engine) -> None:
    """Draw the section below `body`. Raises QueryFailed."""
    part = section(body, "transactions", "Transactions")
    rows = engine.query(_QUERY).to_pylist()
    if not rows:
        note(part, "No transaction was begun.")
        return
    overall = {row["outcome"]: row for row in rows if row["place"] is None}
    whole = sum(row["transactions"] for row in overall.values())
    cells = [
        (
            *(outcome, count(row["transactions"]), share(row["transactions"], whole)),
            *(duration(row["p50"]), duration(row["p99"]), duration(row["most"])),
            count(row["checks"]),
        )
        for outcome in _OUTCOMES
        if (row := overall.get(outcome)) is not None
    ]
    keys = [class_ for outcome, class_ in _OUTCOMES.items() if outcome in overall]
    table(part, _COLUMNS, cells, keys)
    note(part, "Times from the half message to the end; checks are the broker's questions.")
    _draw_groups(part, [row for row in rows if row["place"] is not None])
    _list_open(part, engine)


def _draw_groups(part: Element, rows: list[dict[str, Any]]) -> None:
    legend(part, [(class_, outcome) for outcome, class_ in _OUTCOMES.items()])
    shown = []
    for _, of_group in groupby(rows, lambda row: row["place"]):
        there = list(of_group)
        number = {row["outcome"]: row["transactions"] for row in there}
        parts = [(number.get(outcome, 0), class_) for outcome, class_ in _OUTCOMES.items()]
        whole = sum(number.values())
        name = there[0]["producer_group"] or "unknown producer group"
        shown.append(Bar(name, parts, count(whole)))
    bars(part, shown, max(sum(length for length, _ in bar.parts) for bar in shown))
    groups = rows[0]["groups"]
    if groups > GROUPS_MAX:
        note(part, f"{count(groups - GROUPS_MAX)} more producer groups have fewer transactions.")


def _list_open(part: Element, engine: Engine) -> None:
    rows = engine.query(_OPEN).to_pylist()
    if not rows:
        return
    whole = rows[0]["whole"]
    heading = f"Open or given up, the oldest {len(rows)} of {count(whole)}:"
    note(part, heading if whole > len(rows) else "Open or given up:")
    cells = [
        (
            *(row["producer_group"] or "-", row["topic"] or "-", row["unique_key"] or "-"),
            *(moment(row["begin_ms"]), count(row["checks"])),
        )
        for row in rows
    ]
    table(part, _OPEN_COLUMNS, cells)


_QUERY: Final = f"""
    with places as (
        select
            t.producer_group,
            row_number() over (order by count(*) desc, t.producer_group) as place,
            count(*) over () as groups
        from transactions t
        group by t.producer_group
    ),
    told as (
        select
            case when p.place <= {GROUPS_MAX} then p.place end as place,
            p.groups, p.producer_group, t.outcome, t.checks, t.resolved_ms
        from transactions t
        join places p on p.producer_group is not distinct from t.producer_group
    ),
    figures as (
        select
            grouping(t.place) as is_whole, t.place, any_value(t.producer_group) as producer_group,
            any_value(t.groups) as groups, t.outcome, count(*) as transactions,
            cast(sum(t.checks) as bigint) as checks,
            cast(quantile_disc(t.resolved_ms, 0.5) as double) as p50,
            cast(quantile_disc(t.resolved_ms, 0.99) as double) as p99,
            max(t.resolved_ms) as most
        from told t
        group by grouping sets ((t.place, t.outcome), (t.outcome))
    )
    select f.* from figures f
    where f.is_whole = 1 or f.place is not null
    order by f.place, f.outcome
"""
_OPEN: Final = f"""
    select
        t.producer_group, t.topic, t.unique_key, epoch_ms(t.begin_time) as begin_ms,
        cast(t.checks as bigint) as checks, count(*) over () as whole
    from transactions t
    where t.outcome in ('open', 'given up')
    order by t.begin_time, t.raft_group, t.position
    limit {OPEN_MAX}
"""
