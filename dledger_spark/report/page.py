"""The page: what is wrong now, whether the tables agree, then the events of the log."""

from collections.abc import Callable, Mapping
from typing import Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import as_html, child, new_page, note
from dledger_spark.report.delays import draw_delays
from dledger_spark.report.header import checks, draw_header, logs_of, span_of
from dledger_spark.report.hot_keys import draw_hot_keys
from dledger_spark.report.lag import draw_lag, lag_rows
from dledger_spark.report.latency import draw_latency
from dledger_spark.report.now import draw_lost, draw_now
from dledger_spark.report.quantity import duration, moment
from dledger_spark.report.retries import draw_retries
from dledger_spark.report.span import Span
from dledger_spark.report.style import REPORT_STYLE
from dledger_spark.report.terms import draw_terms
from dledger_spark.report.throughput import draw_throughput
from dledger_spark.report.transactions import draw_transactions
from dledger_spark.tables.engine import Engine

_TIMED: Final[tuple[tuple[str, str, Callable[[Element, Engine, Span], None]], ...]] = (
    ("throughput", "Throughput", draw_throughput),
    ("lag", "Consumer lag", draw_lag),
    ("latency", "Latency", draw_latency),
    ("terms", "Terms", draw_terms),
)
_COUNTED: Final[tuple[tuple[str, str, Callable[[Element, Engine], None]], ...]] = (
    ("retries", "Retries", draw_retries),
    ("transactions", "Transactions", draw_transactions),
    ("delays", "Delays", draw_delays),
    ("keys", "Hot keys", draw_hot_keys),
)


def page(
    title: str,
    engine: Engine,
    ends: Mapping[str, Mapping[str, int | None]],
    on_section: Callable[[int], None] = lambda _done: None,
    now_ms: int | None = None,
) -> str:
    """Return the report as one HTML page, which loads nothing and runs no script.

    Every query is DuckDB's. `ends` is where the tables of facts end; see `header.checks`.
    `on_section` gets the number of sections done. `now_ms` is the reader's clock. Raises
    QueryFailed: a table is missing, for example.
    """
    root, body = new_page(f"{title}: report of a log", REPORT_STYLE)
    child(body, "h1", f"Report of the log in {title}")
    logs = logs_of(engine)
    if not logs:
        note(body, "The tables have no entry.")
        return as_html(root)
    span = span_of(engine)
    if span is not None:
        lasted = duration(span.end_ms - span.begin_ms)
        note(body, f"{moment(span.begin_ms)} to {moment(span.end_ms)} UTC ({lasted})")
    lags = [] if span is None else lag_rows(engine, span)
    draw_lost(body, engine)
    if span is not None:
        draw_now(body, engine, span, lags, now_ms)
    draw_header(body, logs, checks(engine, logs, ends))
    if span is None:
        note(body, "No message is in the log, so there is nothing to draw.")
        return as_html(root)
    contents = child(body, "nav")
    for anchor, name, _ in (*_TIMED, *_COUNTED):
        child(contents, "a", name, href=f"#{anchor}").tail = " "
    on_section(1)
    for at, (_, _, draw) in enumerate(_TIMED):
        if draw is draw_lag:
            draw_lag(body, engine, span, lags)
        else:
            draw(body, engine, span)
        on_section(at + 2)
    for at, (_, _, draw_counted) in enumerate(_COUNTED):
        draw_counted(body, engine)
        on_section(at + 2 + len(_TIMED))
    return as_html(root)


SECTIONS: Final = 1 + len(_TIMED) + len(_COUNTED)
