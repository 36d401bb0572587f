"""The top of the page: the contents of the tables, and whether they agree with one another."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from xml.etree.ElementTree import Element

from dledger.pages.markup import bullets, child, note
from dledger.pages.table import Column
from dledger_spark.report.quantity import count, moment
from dledger_spark.report.section import table
from dledger_spark.report.span import Span
from dledger_spark.tables.engine import Engine

LOGS_MAX: Final = 50
_COLUMNS: Final = (
    *(Column("log", "text"), Column("entries"), Column("first"), Column("last"), Column("terms")),
    *(Column("messages"), Column("topics"), Column("first message (UTC)", "when")),
    Column("last message (UTC)", "when"),
)


class Check(NamedTuple):
    """A condition that holds if the tables are complete; `problem` is None if it does."""

    text: str
    problem: str | None


def logs_of(engine: Engine) -> list[dict[str, Any]]:
    """Return a row for each log: its entries, and the figures of the tables. Raises QueryFailed."""
    return list(engine.query(_LOGS).to_pylist())


def span_of(engine: Engine) -> Span | None:
    """Return the time from the first to the last fact. Raises QueryFailed."""
    (found,) = engine.query(_SPAN).to_pylist()
    if found["begin_ms"] is None:
        return None
    return Span(found["begin_ms"], max(found["end_ms"], found["begin_ms"] + 1))


def checks(
    engine: Engine, logs: list[dict[str, Any]], ends: Mapping[str, Mapping[str, int | None]]
) -> list[Check]:
    """Compare the tables with one another.

    `logs` are from `logs_of`. `ends` is the entry behind those of each table of facts, by log (""
    for one without a name) and by table. Raises QueryFailed: a table lacks a column.
    """
    made = []
    for log in logs:
        name = f"log {log['log']}" if log["log"] else "the log"
        first, last = log["first"], log["last"]
        text = f"{name} has every entry from {first} to {last} once"
        there = last - first + 1
        problem = None
        if log["distinct_entries"] < there:
            (gap,) = engine.query(_first_gap(log["place"])).to_pylist()
            lacking = f"{count(there - log['distinct_entries'])} entries are missing"
            problem = f"{lacking}, the first of them {gap['missing']}"
        elif log["entries"] > there:
            problem = f"{count(log['entries'] - there)} rows of entries are doubled"
        made.append(Check(text, problem))
        text = f"traffic of {name} has its {count(log['timed_messages'])} messages"
        is_equal = log["traffic"] == log["timed_messages"]
        made.append(Check(text, None if is_equal else f"it has {count(log['traffic'])}"))
        text = f"terms of {name} have its {count(log['entries'])} entries"
        is_equal = log["of_terms"] == log["entries"]
        made.append(Check(text, None if is_equal else f"they have {count(log['of_terms'])}"))
        # A table may end before the entries, if later ones give it no row. A writer that was
        # stopped leaves tables that are ahead of the table of entries.
        text = f"no facts of {name} are ahead of its entries"
        other = {
            table: "no entry" if end is None else f"entry {end - 1}"
            for table, end in ends.get(log["log"], {}).items()
            if end is None or end > last + 1
        }
        problem = "; ".join(f"{table} ends with {end}" for table, end in other.items())
        made.append(Check(text, problem or None))
    return made


def draw_header(body: Element, logs: list[dict[str, Any]], made: list[Check]) -> None:
    """Draw the logs, then the checks."""
    broken = [check for check in made if check.problem is not None]
    box = child(body, "div", class_="fails" if broken else "holds")
    child(box, "strong", f"Reconciles: {'no' if broken else 'yes'}")
    if broken:
        bullets(box, [f"Not so: {one.text} ({one.problem})." for one in broken[:LOGS_MAX]])
        note(
            box,
            "Run dledger-spark tables again. What stays so is explained by lost entries "
            "(--no-fail-on-data-loss) or by a writer that is at work.",
        )
    else:
        told = child(box, "details")
        child(told, "summary", f"{count(len(made))} checks")
        shown = made[: 4 * LOGS_MAX]
        bullets(told, [f"{one.text[:1].upper()}{one.text[1:]}." for one in shown])
    rows = [
        (
            *(log["log"] or "(no name)", count(log["entries"])),
            *(count(log["first"]), count(log["last"])),
            f"{log['first_term']} to {log['last_term']}",
            *(count(log["messages"]), count(log["topics"])),
            *(moment(log["begin_ms"]), moment(log["end_ms"])),
        )
        for log in logs[:LOGS_MAX]
    ]
    table(body, _COLUMNS, rows)
    if len(logs) > LOGS_MAX:
        note(body, f"The first {LOGS_MAX} of {count(len(logs))} logs.")


_LOGS: Final = """
    with logs as (
        select
            coalesce(e.raft_group, '') as log, count(*) as entries,
            count(distinct e.index) as distinct_entries, min(e.index) as first,
            max(e.index) as last, min(e.term) as first_term, max(e.term) as last_term
        from entries e
        group by all
    ),
    stored as (
        select
            coalesce(m.raft_group, '') as log, count(*) as messages,
            count(m.store_time) as timed_messages, count(distinct m.topic) as topics,
            epoch_ms(min(m.store_time)) as begin_ms, epoch_ms(max(m.store_time)) as end_ms
        from messages m
        group by all
    ),
    counted as (
        select coalesce(t.raft_group, '') as log, cast(sum(t.messages) as bigint) as messages
        from traffic t
        group by all
    ),
    led as (
        select coalesce(e.raft_group, '') as log, cast(sum(e.entries) as bigint) as entries
        from elections e
        group by all
    )
    select
        l.*, row_number() over (order by l.log) as place,
        coalesce(s.messages, 0) as messages, coalesce(s.timed_messages, 0) as timed_messages,
        coalesce(s.topics, 0) as topics, s.begin_ms, s.end_ms,
        coalesce(c.messages, 0) as traffic, coalesce(d.entries, 0) as of_terms
    from logs l
    left join stored s using (log)
    left join counted c using (log)
    left join led d using (log)
    order by l.log
"""
_SPAN: Final = """
    with moments as (
        select min(m.store_time) as first, max(m.store_time) as last from messages m
        union all
        select min(p.time), max(p.time) from consumer_progress p
        union all
        select min(e.time), max(e.time) from pop_events e
        union all
        -- Commands before the first message are of the time when the brokers were started.
        select null, max(c.time) from commands c
    )
    select epoch_ms(min(o.first)) as begin_ms, epoch_ms(max(o.last)) as end_ms from moments o
"""


def _first_gap(place: int) -> str:
    return f"""
        with numbered as (
            select
                e.index, dense_rank() over (order by coalesce(e.raft_group, '')) as place
            from entries e
        ),
        next as (
            select n.index, lead(n.index) over (order by n.index) as following
            from numbered n
            where n.place = {place}
        )
        select min(x.index) + 1 as missing from next x where x.following > x.index + 1
    """
