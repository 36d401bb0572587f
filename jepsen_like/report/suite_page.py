"""The index of a suite: a row for each run, with a link to its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from jepsen_like.report.markup import as_html, child, new_page
from jepsen_like.report.page import VERDICTS
from jepsen_like.report.style import STYLE
from jepsen_like.report.told_run import Outcome

COLUMNS = (
    ("run", "word"),
    ("workload", "word"),
    ("nemeses", "text"),
    ("members", "number"),
    ("operations", "number"),
    ("verdict", "word"),
    ("longest gap of writes, after", "text"),
    ("median s", "number"),
    ("95 % s", "number"),
    ("max s", "number"),
)


class SuiteRun(NamedTuple):
    """One row.

    Attributes:
        outcome: how it ended.
        reason: the same in a sentence, for runs that did not end well.
        report: the path of its report, beside the index.
        gap: the kind of fault and the figures, in the order of the columns.
    """

    name: str
    workload: str
    nemeses: str
    nodes: int
    operations: int
    outcome: Outcome
    reason: str
    report: str
    gap: Sequence[str]


def suite_page(title: str, command: str, outcome: Outcome, runs: Sequence[SuiteRun]) -> str:
    """The index of the runs that were made so far: one HTML page that needs nothing else."""
    root, body = new_page(f"{VERDICTS[outcome]}: {title}", STYLE)
    child(body, "h1", title)
    box = child(body, "div", class_=f"verdict {_class(outcome)}")
    child(box, "strong", VERDICTS[outcome])
    operations = sum(run.operations for run in runs)
    child(box, "span", f"{len(runs)} runs, {operations:,} operations of clients")
    child(body, "p", "Run it again:", class_="soft")
    child(body, "pre", command)
    _table(body, runs)
    for run in runs:
        if run.outcome is not Outcome.NOTHING_FOUND:
            child(body, "p", f"{run.name}: {run.reason}")
    return as_html(root)


def _class(outcome: Outcome) -> str:
    return outcome.name.lower().replace("_", "-")


def _table(body: Element, runs: Sequence[SuiteRun]) -> None:
    table = child(child(body, "div", class_="table"), "table")
    head = child(table, "tr")
    for name, kind in COLUMNS:
        child(head, "th", name, class_=kind)
    for run in runs:
        line = child(table, "tr")
        first, *others = COLUMNS
        child(child(line, "td", class_=first[1]), "a", run.name, href=run.report)
        cells = (run.workload, run.nemeses, str(run.nodes), f"{run.operations:,}")
        for (_, kind), cell in zip(others, (*cells, VERDICTS[run.outcome], *run.gap), strict=True):
            child(line, "td", cell, class_=kind)
