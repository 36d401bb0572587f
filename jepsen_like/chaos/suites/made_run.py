"""A run of a suite that was made, as its run.json describes it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jepsen_like.chaos.plan import CLIENT_DEFAULT
from jepsen_like.chaos.suites.catalogue import Planned

RUN_FILE = "run.json"
WRITES = "writes"


class WorstGap(NamedTuple):
    """The kind of fault after which writers waited longest, with the figures of its row."""

    kind: str
    median_s: float
    p95_s: float
    max_s: float


class MadeRun(NamedTuple):
    """The result of a run.

    Attributes:
        name: of its folder.
        exit_code: that of `jepsen-like run`; 3 without a verdict.
        verdict, reason: in words.
        operations: calls in the history that was checked.
        worst: None if no fault met a writer.
        again: the command that makes it again.
    """

    name: str
    workload: str
    nemeses: str
    nodes: int
    exit_code: int
    verdict: str
    reason: str
    operations: int
    worst: WorstGap | None
    again: str


def finished_run(folder: Path, planned: Planned, time_s: float) -> MadeRun | None:
    """Return the run of a folder if it was finished as planned.

    None if there is none, if it was stopped or failed, or if it is a run of another plan.
    """
    told = _told(folder / RUN_FILE)
    if told is None or told.get("exit_code") is None or told.get("interrupted"):
        return None
    plan, row = told["plan"], planned.row
    asked = (row.workload, row.nemeses.split(","), row.nodes, time_s, planned.seed, row.lease)
    was = tuple(plan[name] for name in ("service", "nemeses", "nodes", "time_s", "seed", "lease"))
    more = plan.get("grown", False), plan.get("client", CLIENT_DEFAULT)
    is_same = was == asked and more == (row.grown, row.client)
    return made_run(folder, planned) if is_same else None


def made_run(folder: Path, planned: Planned) -> MadeRun:
    """Return the result of a run by its folder, whether it was finished or not."""
    told = _told(folder / RUN_FILE) or {}
    checked = told.get("checked") or {}
    row = planned.row
    return MadeRun(
        name=planned.name,
        workload=row.workload,
        nemeses=row.nemeses,
        nodes=row.nodes,
        exit_code=3 if told.get("exit_code") is None else int(told["exit_code"]),
        verdict=str(told.get("verdict") or "harness failed"),
        reason=str(told.get("reason") or f"see {planned.name}.txt"),
        operations=int(checked.get("operations") or 0),
        worst=worst_gap(told.get("gaps", ())),
        again=str(told.get("again", "")),
    )


def worst_gap(rows: Iterable[Mapping[str, Any]]) -> WorstGap | None:
    """Return, of the rows of a table of gaps, that of writers with the longest gap."""
    writes = [row for row in rows if row["who"] == WRITES]
    row = max(writes, key=lambda each: float(each["max_s"]), default=None)
    if row is None:
        return None
    return WorstGap(row["kind"], row["median_s"], row["p95_s"], row["max_s"])


def _told(path: Path) -> dict[str, Any] | None:
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return told
