"""How late delayed messages were delivered."""

from typing import Any, Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import note
from dledger_spark.report.quantity import count, duration, share
from dledger_spark.report.section import Bar, bars, section
from dledger_spark.tables.engine import Engine

# The classes of the histogram end before these; the last one has no end.
BOUNDS_MS: Final = (0, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000)


def draw_delays(body: Element, engine: Engine) -> None:
    """Draw the section below `body`. Raises QueryFailed."""
    part = section(body, "delays", "Delayed messages")
    (sums,) = engine.query(_SUMS).to_pylist()
    if not sums["messages"]:
        note(part, "No message was delayed.")
        return
    note(
        part,
        f"{count(sums['messages'])} messages: {count(sums['delivered'])} delivered, "
        f"{count(sums['waiting'])} wait, {count(sums['dropped'])} recalled or dropped with their "
        "topic.",
    )
    if not sums["delivered"]:
        return
    note(
        part,
        f"Delivered after they were due: median {duration(sums['p50'])}, 99 % within "
        f"{duration(sums['p99'])}, at most {duration(sums['most'])}.",
    )
    bars(part, *_histogram(engine.query(_HISTOGRAM).to_pylist()))


def _histogram(rows: list[dict[str, Any]]) -> tuple[list[Bar], float]:
    number = {row["place"]: row["messages"] for row in rows}
    whole, most = sum(number.values()), max(number.values())
    # Empty classes at both ends are left out.
    shown = range(min(number), max(number) + 1)
    made = [
        Bar(
            _class_name(place),
            [(number.get(place, 0), "bad" if place == 0 else "c0")],
            f"{count(number.get(place, 0))} ({share(number.get(place, 0), whole)})",
        )
        for place in shown
    ]
    return made, most


def _class_name(place: int) -> str:
    """Name a class: place 0 is early, place 1 up to 10 ms late."""
    if place == 0:
        return "too early"
    if place == len(BOUNDS_MS):
        return f"{duration(BOUNDS_MS[-1])} or more"
    return f"{duration(BOUNDS_MS[place - 1])} to {duration(BOUNDS_MS[place])}"


_SUMS: Final = """
    select
        count(*) as messages,
        count(*) filter (d.outcome = 'delivered') as delivered,
        count(*) filter (d.outcome = 'waiting') as waiting,
        count(*) filter (d.outcome = 'dropped') as dropped,
        cast(quantile_disc(d.late_ms, 0.5) as double) as p50,
        cast(quantile_disc(d.late_ms, 0.99) as double) as p99,
        max(d.late_ms) as most
    from delays d
"""
_HISTOGRAM: Final = f"""
    select
        {" + ".join(f"cast(d.late_ms >= {bound} as integer)" for bound in BOUNDS_MS)} as place,
        count(*) as messages
    from delays d
    where d.late_ms is not null
    group by place
"""
