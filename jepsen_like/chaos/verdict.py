"""The result of a run: the verdict of the checker, the findings, the gaps, and run.json."""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import trio

import dledger
from jepsen_like.chaos.doubts import Doubts, doubts_of
from jepsen_like.chaos.gaps import gap_rows, windows_of
from jepsen_like.chaos.nemeses.hostile_client import unserved
from jepsen_like.chaos.nemeses.schedule import Fault
from jepsen_like.chaos.plan import CALLS_A_SECOND_DEFAULT, CLIENT_DEFAULT, RunPlan, typed
from jepsen_like.chaos.run import Run, RunResult
from jepsen_like.chaos.whole_file import write_whole
from jepsen_like.check_files import Checked, Plan, check_file
from jepsen_like.checkers.report import Verdict
from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.history.operation import Operation
from jepsen_like.history.reading import read_history
from jepsen_like.report.told_run import GapRow, RunExit

RUN_FORMAT = 1
STATISTICS = "statistics"


@dataclass(frozen=True)
class RunVerdict:
    """The verdict of a run, and its reasons.

    `doubts` qualify a run that found nothing; they are part of its reason.
    """

    exit: RunExit
    reason: str
    checked: Checked | None
    statistics: Checked | None
    gaps: Sequence[GapRow]
    operations: Sequence[Operation] = ()
    doubts: Sequence[str] = ()


def judge(run: Run, check_limit_s: float) -> RunVerdict:
    """Check the history of a run, and combine the result with the findings of the run."""
    result = run.result
    statistics = check_file(run.history, Plan(STATISTICS, time_limit_s=check_limit_s))
    # Else the header of the history names the checker.
    model = STATISTICS if run.stage.model_name is None else None
    plan = Plan(model, time_limit_s=check_limit_s, allowed=run.stage.allowed)
    checked = check_file(run.history, plan)
    operations = _operations(run)
    gaps = _gaps(run, operations)
    result.findings += unserved(gaps)
    findings = [*result.findings, *(f"in the end: {each}" for each in result.unanswered)]
    exit_, reason = _outcome(checked, findings)
    if exit_ is RunExit.NOTHING_FOUND and result.aborted:
        exit_, reason = RunExit.UNDECIDED, "it was stopped before the last reads"
    doubts = doubts_of(result.events, result.links)
    if exit_ is RunExit.NOTHING_FOUND:
        exit_, reason = doubted(reason, doubts)
    return RunVerdict(exit_, reason, checked, statistics, gaps, operations, doubts.texts)


def doubted(reason: str, doubts: Doubts) -> tuple[RunExit, str]:
    """Return the exit and the reason of a run that found nothing.

    If no fault had any effect, nothing was tested: that is undecided.
    """
    if not doubts.texts:
        return RunExit.NOTHING_FOUND, reason
    more = len(doubts.texts) - 1
    but = doubts.texts[0] + (f", and {more} more in doubt" if more else "")
    exit_ = RunExit.UNDECIDED if doubts.nothing_broke else RunExit.NOTHING_FOUND
    return exit_, f"{reason}; but {but}"


def _outcome(checked: Checked, findings: Sequence[str]) -> tuple[RunExit, str]:
    if checked.report is not None and checked.report.verdict is Verdict.INVALID:
        return RunExit.VIOLATION, checked.report.summary
    if findings:
        return RunExit.VIOLATION, findings[0]
    if checked.report is None:
        return RunExit.HARNESS_FAILED, f"the history cannot be read: {checked.unreadable}"
    if checked.report.verdict is Verdict.UNKNOWN:
        return RunExit.UNDECIDED, checked.report.summary
    return RunExit.NOTHING_FOUND, checked.report.summary


def _operations(run: Run) -> Sequence[Operation]:
    try:
        return read_history(run.history).operations
    except HistoryUnreadable:
        return ()  # the verdict says so


def _gaps(run: Run, operations: Sequence[Operation]) -> list[GapRow]:
    windows = windows_of(run.result.events, run.result.quiet_from_ns)
    stage = run.stage
    clients = stage.readers + stage.writers
    return gap_rows(operations, windows, stage.readers, clients, stage.step)


def again(plan: RunPlan, service_option: str) -> str:
    words = ["jepsen-like", "run", service_option, plan.service]
    words += ["--nemesis", ",".join(plan.nemeses) or "none"]
    words += ["--nodes", str(plan.nodes), "--time", typed(plan.time_s), "--seed", str(plan.seed)]
    words += ["--lease"] * plan.lease
    words += ["--grown"] * plan.grown
    if plan.seeded_bug is not None:
        words += ["--dirty", plan.seeded_bug]
    if plan.calls_a_second != CALLS_A_SECOND_DEFAULT:
        words += ["--rate", typed(plan.calls_a_second)]
    if plan.network != "auto":
        words += ["--network", plan.network]
    if plan.system is not None:
        words += ["--system", plan.system]
    if plan.client != CLIENT_DEFAULT:
        words += ["--client", plan.client]
    return shlex.join(words)


def versions() -> dict[str, str]:
    return {
        "dledger": dledger.__version__,
        "trio": trio.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def run_file(
    plan: RunPlan,
    again_: str,
    planned: Sequence[Fault],
    result: RunResult | None = None,
    verdict: RunVerdict | None = None,
) -> dict[str, object]:
    """Return the content of run.json; docs/chaos.md has the fields."""
    told: dict[str, object] = {
        "run_format": RUN_FORMAT,
        "plan": asdict(plan),
        "again": again_,
        "versions": versions(),
        "schedule": [fault._asdict() for fault in planned],
        "verdict": None,
    }
    if result is not None:
        told |= {
            "network": {
                "kind": result.network,
                "left_out": list(result.left_out),
                "links": [
                    {"source": source, "target": target, **asdict(counts)}
                    for (source, target), counts in result.links.items()
                ],
            },
            "interrupted": result.interrupted,
            "findings": [*result.findings, *result.unanswered],
        }
    if verdict is not None:
        told |= {
            "verdict": verdict.exit.name.lower().replace("_", " "),
            "exit_code": int(verdict.exit),
            "reason": verdict.reason,
            "doubts": list(verdict.doubts),
            "gaps": [row._asdict() for row in verdict.gaps],
            "checked": _checked(verdict.checked),
            "statistics": _checked(verdict.statistics),
        }
    return told


def _checked(checked: Checked | None) -> dict[str, object] | None:
    if checked is None:
        return None
    report = checked.report
    return {
        "model": checked.model,
        "verdict": checked.verdict,
        "operations": checked.operations,
        "seconds": round(checked.took_s, 3),
        "summary": checked.unreadable if report is None else report.summary,
        "problems": [] if report is None else [asdict(problem) for problem in report.problems],
        "text": [] if report is None else list(report.text),
    }


def write_run_file(folder: Path, content: dict[str, object]) -> None:
    write_whole(folder / "run.json", json.dumps(content, indent=1) + "\n")
