"""The keys of the most messages."""

from typing import Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import note
from dledger.pages.table import Column
from dledger_spark.report.quantity import count, moment, share, size
from dledger_spark.report.section import section, table
from dledger_spark.tables.engine import Engine

KEYS_MAX: Final = 20
_COLUMNS: Final = (
    *(Column("key", "text"), Column("topic", "text"), Column("messages"), Column("of its topic")),
    *(Column("bodies"), Column("in its worst 10 min"), Column("which began (UTC)", "when")),
)


def draw_hot_keys(body: Element, engine: Engine) -> None:
    """Draw the section below `body`. Raises QueryFailed."""
    part = section(body, "keys", "Hot keys")
    rows = engine.query(_QUERY).to_pylist()
    if not rows:
        note(part, "No message has a key.")
        return
    cells = [
        (
            *(row["key"], row["topic"], count(row["messages"])),
            *(share(row["messages"], row["of_topic"]), size(row["bytes"])),
            *(count(row["most"]), moment(row["most_ms"])),
        )
        for row in rows
    ]
    table(part, _COLUMNS, cells)
    note(part, "Counted while a key was among the twenty of the most messages in ten minutes.")


_QUERY: Final = f"""
    with of_topic as (
        select t.topic, sum(t.messages) as messages from traffic t group by t.topic
    ),
    over_logs as (
        select
            h.topic, h.key, h.since, sum(h.messages) as messages, sum(h.bytes) as bytes
        from hot_keys h
        group by all
    )
    select
        o.key, o.topic,
        cast(sum(o.messages) as bigint) as messages,
        cast(sum(o.bytes) as double) as bytes,
        cast(max(o.messages) as bigint) as most,
        epoch_ms(arg_max(o.since, o.messages)) as most_ms,
        cast(any_value(t.messages) as bigint) as of_topic
    from over_logs o
    join of_topic t on t.topic = o.topic
    group by o.key, o.topic
    order by messages desc, o.topic, o.key
    limit {KEYS_MAX}
"""
