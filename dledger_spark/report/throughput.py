"""Messages a second by topic."""

from typing import Any, Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import note
from dledger.pages.scale import Scale
from dledger.pages.table import Column
from dledger_spark.report.plot import Plot, picture
from dledger_spark.report.quantity import count, duration, rate, share, short, size
from dledger_spark.report.section import section, table
from dledger_spark.report.span import Span, Steps
from dledger_spark.tables.engine import Engine

# The topics with the most messages have a colour each; the others share one.
TOPICS_MAX: Final = 7
_HEIGHT: Final = 210.0
_LEAST_MS: Final = 1000
_COLUMNS: Final = (
    *(Column("topic", "text"), Column("messages"), Column("of all"), Column("bodies")),
    *(Column("mean body"), Column("most")),
)


def draw_throughput(body: Element, engine: Engine, span: Span) -> None:
    """Draw the section below `body`. Raises QueryFailed."""
    part = section(body, "throughput", "Throughput by topic")
    steps = span.steps(_LEAST_MS)
    topics = engine.query(_TOPICS).to_pylist()
    if not topics:
        note(part, "No message was stored.")
        return
    layers = _layers(engine.query(throughput_query(steps)).to_pylist(), steps, len(topics))
    tops: list[list[float]] = [[0.0] * steps.number]
    for layer in layers:
        tops.append([low + more for low, more in zip(tops[-1], layer, strict=True)])

    def draw(plot: Plot) -> None:
        scale = Scale(0.0, max(tops[-1]), _HEIGHT, 8.0)
        for at in range(len(layers)):
            plot.area(steps, tops[at], tops[at + 1], scale, f"c{at}")
        plot.lines(scale, lambda value: f"{short(value)}/s")
        plot.axis(8.0, _HEIGHT)

    picture(part, "messages a second by topic, stacked", _HEIGHT, span, draw)
    note(part, f"Messages stored a second, in steps of {duration(steps.step_ms)}; stacked.")
    whole = sum(row["messages"] for row in topics)
    cells = [
        (
            row["topic"] if row["place"] <= TOPICS_MAX else f"{count(row['topics'])} others",
            count(row["messages"]),
            share(row["messages"], whole),
            size(row["bytes"]),
            size(row["bytes"] / row["messages"]),
            rate(max(layer)),
        )
        for row, layer in zip(topics, layers, strict=True)
    ]
    table(part, _COLUMNS, cells, [f"c{at}" for at in range(len(cells))])


def _layers(rows: list[dict[str, Any]], steps: Steps, number: int) -> list[list[float]]:
    layers = [[0.0] * steps.number for _ in range(number)]
    for row in rows:
        layers[row["place"] - 1][row["step"]] = row["messages"] * 1000 / steps.step_ms
    return layers


# The topics by their messages; one row for all without a colour.
_PLACES: Final = f"""
    select
        t.topic,
        sum(t.messages) as messages,
        sum(t.bytes) as bytes,
        least({TOPICS_MAX + 1}, row_number() over (order by sum(t.messages) desc, t.topic)) as place
    from traffic t
    group by t.topic
"""
_TOPICS: Final = f"""
    select
        p.place,
        min(p.topic) as topic,
        count(*) as topics,
        cast(sum(p.messages) as bigint) as messages,
        cast(sum(p.bytes) as double) as bytes
    from ({_PLACES}) p
    group by p.place
    order by p.place
"""


def throughput_query(steps: Steps) -> str:
    return f"""
        select p.place, {steps.of("m.store_time")} as step, count(*) as messages
        from messages m
        join ({_PLACES}) p on p.topic = m.topic
        where m.store_time is not null
        group by all
    """
