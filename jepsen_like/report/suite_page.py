"""The index of a suite: a row for each run, with a link to its report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from dledger.pages.markup import as_html, child, new_page, note
from dledger.pages.table import Cell, Column, draw_table
from jepsen_like.report.page import VERDICTS, told_verdict
from jepsen_like.report.style import RUN_STYLE
from jepsen_like.report.told_run import RunExit

COLUMNS = (
    *(Column("run", "word"), Column("workload", "word"), Column("nemeses", "text")),
    *(Column("members"), Column("operations"), Column("verdict", "word")),
    Column("longest gap of writes, after", "text"),
    *(Column("median s"), Column("95 % s"), Column("max s")),
)


class SuiteRun(NamedTuple):
    """One row. `report` is the path of a run's report, beside the index.

    `gap` is the kind of fault and the figures, in the order of the columns.
    """

    name: str
    workload: str
    nemeses: str
    nodes: int
    operations: int
    outcome: RunExit
    reason: str
    report: str
    gap: Sequence[str]


def suite_page(title: str, command: str, outcome: RunExit, runs: Sequence[SuiteRun]) -> str:
    """Return the index of the runs that were made so far: one HTML page that needs no other
    file.
    """
    root, body = new_page(f"{VERDICTS[outcome]}: {title}", RUN_STYLE)
    child(body, "h1", title)
    operations = sum(run.operations for run in runs)
    told_verdict(body, outcome, f"{len(runs)} runs, {operations:,} operations of clients")
    note(body, "Run it again:")
    child(body, "pre", command)
    draw_table(body, COLUMNS, map(_cells, runs))
    for run in runs:
        if run.outcome is not RunExit.NOTHING_FOUND:
            child(body, "p", f"{run.name}: {run.reason}")
    return as_html(root)


def _cells(run: SuiteRun) -> list[Cell]:
    counts = (str(run.nodes), f"{run.operations:,}")
    linked = partial(child, tag="a", text=run.name, href=run.report)
    return [linked, run.workload, run.nemeses, *counts, VERDICTS[run.outcome], *run.gap]
