"""Medians over rounds, and ratios, as the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from bench.plan import Contender, Point
from bench.workload import Measured

# Columns of words; all others hold numbers.
TEXT_COLUMNS = frozenset({"system", "fault", "way", "what"})

Results = Mapping[tuple[Point, str], Sequence[Measured]]  # by place in the grid and contender's key


class Summary(NamedTuple):
    rate: float
    lowest: float
    highest: float
    median_ms: float
    p99_ms: float
    failed: int
    runs: int


class Rows(NamedTuple):
    title: str
    columns: list[str]
    cells: list[list[str]]


def summary(runs: Sequence[Measured]) -> Summary:
    """Return medians over the runs; of the rates, the lowest and the highest too."""
    rates = [run.entries_per_s for run in runs]
    return Summary(
        rate=median(rates),
        lowest=min(rates),
        highest=max(rates),
        median_ms=median(run.median_ms for run in runs),
        p99_ms=median(run.p99_ms for run in runs),
        failed=sum(run.failed for run in runs),
        runs=len(runs),
    )


def table_of_size(
    body_bytes: int, in_flight: Sequence[int], contenders: Sequence[Contender], results: Results
) -> Rows:
    ours = [each for each in contenders if each.ours]
    columns = ["in flight", "system", "entries/s", "lowest", "highest", "p50 ms", "p99 ms"]
    columns += ["of the limit", *(f"{each.call} / it" for each in ours)]
    cells: list[list[str]] = []
    for number in in_flight:
        point = Point(body_bytes, number)
        found = {
            each: summary(results[point, each.key])
            for each in contenders
            if results.get((point, each.key))
        }
        cells += [_row(number, each, found, ours) for each in found]
    return Rows(f"bodies of {body_bytes} bytes", columns, cells)


def _row(
    in_flight: int, contender: Contender, found: Mapping[Contender, Summary], ours: list[Contender]
) -> list[str]:
    own = found[contender]
    failed = f", {own.failed} failed" if own.failed else ""
    ratios = [
        ""
        if contender.ours or contender.limit or each not in found
        else ratio(found[each].rate, own.rate)
        for each in ours
    ]
    return [
        str(in_flight),
        f"{contender.name}{'' if contender.syncs else ' (does not sync)'}{failed}",
        f"{own.rate:,.0f}",
        f"{own.lowest:,.0f}",
        f"{own.highest:,.0f}",
        f"{own.median_ms:.2f}",
        f"{own.p99_ms:.2f}",
        _share_of_limit(contender, found),
        *ratios,
    ]


def _share_of_limit(contender: Contender, found: Mapping[Contender, Summary]) -> str:
    if contender.limit:
        return ""
    for limit, measured in found.items():
        if limit.limit and limit.round_trips in (0, contender.round_trips):
            return f"{found[contender].rate / measured.rate * 100:.0f} %"
    return ""


def ratio(ours: float, theirs: float) -> str:
    """Return the ratio of our figure to theirs."""
    times = ours / theirs
    return (
        f"{times:.0f} x" if times >= 100 else f"{times:.2f} x" if times < 10 else f"{times:.1f} x"
    )


def markdown(rows: Rows) -> str:
    """Return the table as Markdown, its columns aligned, numbers to the right."""
    widths = [
        max(len(name), *(len(row[at]) for row in rows.cells)) if rows.cells else len(name)
        for at, name in enumerate(rows.columns)
    ]
    left = {at for at, name in enumerate(rows.columns) if name in TEXT_COLUMNS}

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * width if at in left else "-" * (width - 1) + ":" for at, width in enumerate(widths)
    ]
    return "\n".join([line(rows.columns), line(rule), *map(line, rows.cells)])


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]
