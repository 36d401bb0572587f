"""The beginning of the page: what is wrong at the end of the log."""

from typing import Any, Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import child, note
from dledger_spark.report.lag import anchor_of, lag_steps, queue_name, queues_behind, trend
from dledger_spark.report.quantity import HOUR_MS, count, cut, duration, moment
from dledger_spark.report.section import NAME_LETTERS_MAX
from dledger_spark.report.span import NOW, Span, Steps
from dledger_spark.tables.engine import Engine

# The groups that are named; the section about lag has more of them.
GROUPS_MAX: Final = 3
# Ranges of entries that could not be read are named; the table has all.
RANGES_MAX: Final = 3
# A problem names a file with its folder, and what is wrong there.
PROBLEM_LETTERS_MAX: Final = 200
# Brokers deliver within some milliseconds of the time; what is later than this is stuck.
_LATE_MS: Final = 10_000


def draw_lost(body: Element, engine: Engine) -> None:
    """Draw a line if entries of the logs could not be read. Raises QueryFailed."""
    rows = engine.query(_LOST).to_pylist()
    if not rows:
        return
    entries, ranges = rows[0]["entries"], rows[0]["ranges"]
    told = "; ".join(
        f"{cut(row['log'], NAME_LETTERS_MAX)} {row['first']}..{row['last']}, "
        f"{cut(row['problem'], PROBLEM_LETTERS_MAX)}"
        for row in rows
    )
    text = f"{count(entries)} {'entry' if entries == 1 else 'entries'} could not be read: {told}"
    if ranges > len(rows):
        text += f"; and {count(ranges - len(rows))} more ranges (table lost_entries)"
    child(child(body, "div", class_="fails"), "strong", text)


def draw_now(
    body: Element,
    engine: Engine,
    span: Span,
    lags: list[dict[str, Any]],
    now_ms: int | None,
) -> None:
    """Draw what is wrong now, with a link to each. Raises QueryFailed.

    `lags` are from `lag_rows`. `now_ms` is the reader's clock: ages in the page are those at the
    end of the log, which may be older.
    """
    steps = lag_steps(span)
    groups = list({row["group_place"]: row for row in lags if row["last"]}.values())
    groups.sort(key=lambda row: row["group_place"])
    (other,) = engine.query(_OTHER).to_pylist()
    box = child(body, "div", class_="fails" if groups or any(other.values()) else "holds")
    listed = queues_behind(engine) if groups else {}
    for at, group in enumerate(groups[:GROUPS_MAX]):
        line = child(box, "p") if at else child(child(box, "p"), "strong")
        _link_to_group(line, group, listed.get(group["consumer_group"], []), steps, is_first=not at)
    if groups and groups[0]["groups_behind"] > GROUPS_MAX:
        left = groups[0]["groups_behind"] - GROUPS_MAX
        child(child(box, "p"), "a", f"{count(left)} more groups are behind", href="#lag")
    for anchor, number, text in (
        ("retries", other["dead"], "messages died in the last hour and were not redriven"),
        ("delays", other["late"], "delayed messages are due and not delivered"),
        ("transactions", other["given_up"], "transactions were given up in the last hour"),
    ):
        if number:
            child(child(box, "p"), "a", f"{count(number)} {text}", href=f"#{anchor}")
    if len(box) == 0:
        child(box, "strong", "Nothing waits for a consumer group.")
    note(box, _end(span, now_ms))


def _link_to_group(
    line: Element,
    group: dict[str, Any],
    queues: list[dict[str, Any]],
    steps: Steps,
    *,
    is_first: bool,
) -> None:
    name = cut(group["consumer_group"], NAME_LETTERS_MAX)
    begin = "Worst now: group" if is_first else "Group"
    text = f"{begin} {name}, {count(group['last'])} behind, {trend(group, steps)}"
    if group["oldest_ms"] is not None:
        text += f"; the first waits for {duration(group['oldest_ms'])}"
    place = None
    if queues:
        is_of_several = len({row["log"] for row in queues}) > 1
        worst = cut(queue_name(queues[0], is_of_several=is_of_several), NAME_LETTERS_MAX)
        text += f"; most in {worst}"
        place = queues[0]["place"]
    child(line, "a", text, href=f"#{anchor_of(group, place)}")


def _end(span: Span, now_ms: int | None) -> str:
    text = f"As of the end of the log, {moment(span.end_ms)} UTC."
    if now_ms is not None and now_ms > span.end_ms:
        later = duration(now_ms - span.end_ms)
        text += (
            f" The page was made {later} later: if nothing was written since, what waits has "
            "waited for so much longer."
        )
    return text


_LOST: Final = f"""
    select
        coalesce(e.raft_group, 'the log') as log, e.index as first, e.last,
        coalesce(e.problem, '') as problem,
        (sum(e.last - e.index + 1) over ())::bigint as entries, count(*) over () as ranges
    from lost_entries e
    order by e.raft_group nulls first, e.index
    limit {RANGES_MAX}
"""
_OTHER: Final = f"""
    select
        (
            select count(*) from dead_letters d
            where d.redriven_time is null and epoch_ms(d.dead_time) > ({NOW}) - {HOUR_MS}
        ) as dead,
        (
            select count(*) from delays d
            where d.outcome = 'waiting' and epoch_ms(d.due_time) < ({NOW}) - {_LATE_MS}
        ) as late,
        (
            select count(*) from transactions t
            where t.outcome = 'given up' and epoch_ms(t.end_time) > ({NOW}) - {HOUR_MS}
        ) as given_up
"""
