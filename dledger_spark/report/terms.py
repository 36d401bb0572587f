"""The leader of each term, and the times without stored messages between terms."""

import json
from itertools import groupby
from typing import Any, Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import child, note
from dledger.pages.sheet import legend
from dledger.pages.table import Column
from dledger_spark.report.plot import Plot, picture
from dledger_spark.report.quantity import count, duration, moment
from dledger_spark.report.section import section, table
from dledger_spark.report.span import Span
from dledger_spark.tables.engine import Engine

LOGS_MAX: Final = 8
TERMS_MAX: Final = 200
LEADERS_MAX: Final = 12
GAPS_MAX: Final = 10
_ROW: Final = 20.0
_COLUMNS: Final = (
    *(Column("nothing stored for"), Column("before (UTC)", "when"), Column("term")),
    *(Column("leader", "text"), Column("log", "text"), Column("entries")),
)


def draw_terms(body: Element, engine: Engine, span: Span) -> None:
    """Draw the section below `body`. Raises QueryFailed."""
    part = section(body, "terms", "Terms and leaders")
    rows = [_named(row) for row in engine.query(_TERMS).to_pylist()]
    drawn = [row for row in rows if row["begin_ms"] is not None]
    if not drawn:
        note(part, "No message was stored in any term.")
        return
    words = [("c0", "a term, from its first message to its last"), ("c4", "the next term")]
    legend(part, [*words, ("gap", "nothing stored")])
    for _, of_log in groupby(drawn, lambda row: row["log"]):
        _draw_log(part, list(of_log), span)
    logs = rows[0]["logs"]
    if logs > LOGS_MAX:
        note(part, f"The first {LOGS_MAX} of {count(logs)} logs.")
    gaps = [_named(row) for row in engine.query(_GAPS).to_pylist()]
    if not gaps:
        note(part, "There was one term with messages, so no change of leaders.")
        return
    cells = [
        (
            *(duration(row["gap_ms"]), moment(row["begin_ms"]), count(row["term"])),
            *(row["leader"], row["log"] or "-", count(row["entries"])),
        )
        for row in gaps
    ]
    note(
        part,
        "The longest times before the first message of a term. Without load they say how long "
        "nobody sent.",
    )
    table(part, _COLUMNS, cells)


def _draw_log(part: Element, terms: list[dict[str, Any]], span: Span) -> None:
    if terms[0]["log"]:
        child(part, "h3", terms[0]["log"][:300])
    leaders = sorted({term["leader"] for term in terms})
    shown = leaders[:LEADERS_MAX]
    height = len(shown) * _ROW + 2

    def draw(plot: Plot) -> None:
        plot.axis(2.0, height)
        for at, leader in enumerate(shown):
            plot.name(leader, at * _ROW + _ROW - 4)
        for term in terms:
            if term["gap_ms"]:
                begin_ms = term["begin_ms"] - term["gap_ms"]
                gap = plot.rect(begin_ms, term["begin_ms"], 2.0, height - 2, "gap")
                child(gap, "title", f"{duration(term['gap_ms'])} before term {term['term']}")
            if term["leader"] in shown:
                top = shown.index(term["leader"]) * _ROW + 4
                # Adjacent terms have different colours, even with one leader.
                class_ = "c0" if term["term"] % 2 else "c4"
                bar = plot.rect(term["begin_ms"], term["end_ms"], top, _ROW - 4, class_)
                child(bar, "title", _summary(term))

    picture(part, "terms by leader over time", height, span, draw)
    if len(leaders) > len(shown):
        note(part, f"The first {len(shown)} of {count(len(leaders))} leaders.")
    if terms[0]["terms"] > TERMS_MAX:
        note(part, f"The last {TERMS_MAX} of {count(terms[0]['terms'])} terms.")


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """Name the leader of a row if the log has its name; else it is an address."""
    if row["said"] is not None:
        said = json.loads(row["said"])
        row["leader"] = f"{said['node_id']} {said['address']}"
    return row


def _summary(term: dict[str, Any]) -> str:
    lasted = duration(term["end_ms"] - term["begin_ms"])
    return f"term {term['term']}: {term['leader']}, {lasted}, {count(term['entries'])} entries"


# Brokers behind a shared address store messages with that address, so each new leader appends its
# name to the log.
_SAID: Final = """
    select coalesce(c.raft_group, '') as log, c.term, min(c.detail) as said
    from commands c
    where c.name = 'lead from'
    group by all
"""
_TERMS: Final = f"""
    with told as (
        select
            coalesce(e.raft_group, '') as log, e.term, e.leader, e.entries,
            epoch_ms(e.first_time) as begin_ms, epoch_ms(e.last_time) as end_ms,
            cast(e.gap_ms as bigint) as gap_ms,
            row_number() over (partition by e.raft_group order by e.term desc) as back,
            count(*) over (partition by e.raft_group) as terms,
            dense_rank() over (order by coalesce(e.raft_group, '')) as place,
            (select count(distinct coalesce(o.raft_group, '')) from elections o) as logs
        from elections e
    )
    select t.*, s.said
    from told t
    left join ({_SAID}) s on s.log = t.log and s.term = t.term
    where t.back <= {TERMS_MAX} and t.place <= {LOGS_MAX}
    order by t.log, t.term
"""
_GAPS: Final = f"""
    select
        cast(e.gap_ms as bigint) as gap_ms, epoch_ms(e.first_time) as begin_ms, e.term, e.leader,
        coalesce(e.raft_group, '') as log, e.entries, s.said
    from elections e
    left join ({_SAID}) s on s.log = coalesce(e.raft_group, '') and s.term = e.term
    where e.gap_ms is not null
    order by e.gap_ms desc, e.raft_group, e.term
    limit {GAPS_MAX}
"""
