"""The report of a run: the verdict first, then its reasons."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from xml.etree.ElementTree import Element

from dledger.pages.markup import as_html, bullets, child, new_page, note
from dledger.pages.sheet import legend
from dledger.pages.table import Column, draw_table
from jepsen_like.checkers.quantiles import quantiles, seconds
from jepsen_like.checkers.report import Verdict
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.report.failing_window import draw_failing_window, failing_window
from jepsen_like.report.frame import BANDS_MAX, Frame
from jepsen_like.report.overview import LEGEND, draw_overview
from jepsen_like.report.style import RUN_STYLE
from jepsen_like.report.timeline import draw_timeline
from jepsen_like.report.told_run import Checked, RunExit, ToldRun

VERDICTS = {
    RunExit.NOTHING_FOUND: "Nothing found",
    RunExit.VIOLATION: "Violation",
    RunExit.UNDECIDED: "Undecided",
    RunExit.HARNESS_FAILED: "The harness failed",
}
# Problems shown of one checker; `jepsen-like check --json` has more.
PROBLEMS_MAX = 8
# Windows drawn in all: the first problems matter most.
WINDOWS_MAX = 3
DEATHS_MAX = 200


def page(run: ToldRun) -> str:
    """Return the report of a run: one HTML page that needs no other file."""
    root, body = new_page(f"{VERDICTS[run.outcome]}: {run.title}", RUN_STYLE)
    frame = _frame(run)
    _verdict(body, run)
    _problems(body, run, frame)
    if run.operations:
        child(body, "h2", "Faults, latency, throughput")
        legend(body, LEGEND)
        frame.on_each_sheet(
            body,
            lambda parent, on: draw_overview(parent, on, run.operations, run.deliveries),
        )
        if len(run.faults) > BANDS_MAX:
            child(body, "p", f"The first {BANDS_MAX} of {len(run.faults)} faults are drawn.")
    _gaps(body, run)
    _checks(body, run.checks)
    if run.operations:
        child(body, "h2", "Clients")
        frame.on_each_sheet(body, lambda parent, on: draw_timeline(parent, on, run.operations))
        _functions(body, run.operations, run.deliveries)
    _deaths(body, run, frame)
    _facts(body, run)
    return as_html(root)


def _frame(run: ToldRun) -> Frame:
    begins = [one.invoked_ns for one in run.operations] + [one.begin_ns for one in run.faults]
    ends = [one.ended_ns for one in run.operations if one.ended_ns is not None]
    ends += [one.end_ns for one in run.faults if one.end_ns is not None]
    begin_ns = min(begins, default=0)
    end_ns = max([begin_ns + 1, *begins, *ends])
    return Frame(begin_ns, end_ns, begin_ns, run.faults)


def _verdict(body: Element, run: ToldRun) -> None:
    child(body, "h1", run.title)
    told_verdict(body, run.outcome, run.reason)
    note(body, "Run it again:")
    _command(body, run.command)
    if run.links:
        line = note(body, "Files: ")
        for at, link in enumerate(run.links):
            one = child(line, "a", link.name, href=link.path)
            one.tail = ", " if at + 1 < len(run.links) else ""


def told_verdict(body: Element, outcome: RunExit, reason: str) -> None:
    """Add how a run or a suite ended, and why."""
    class_ = outcome.name.lower().replace("_", "-")
    box = child(body, "div", class_=f"verdict {class_}")
    child(box, "strong", VERDICTS[outcome])
    child(box, "span", reason)


def _command(body: Element, command: str) -> None:
    """Add a command whose lines break only between words: browsers break at hyphens, too."""
    line = child(body, "pre")
    for word in command.split(" "):
        one = child(line, "span", word, class_="whole")
        one.tail = " "
    line[-1].tail = None


def _problems(body: Element, run: ToldRun, frame: Frame) -> None:
    drawn = 0
    for checked in run.checks:
        if checked.report.verdict is not Verdict.INVALID:
            continue
        child(body, "h2", f"What is wrong: {checked.model}")
        report = checked.report
        counted = [one for one in report.problems if one.kind not in report.allowed]
        for problem in counted[:PROBLEMS_MAX]:
            child(body, "p", f"{problem.kind}: {problem.how}")
            window = failing_window(problem, run.operations, run.faults, frame.zero_ns)
            if window is not None and drawn < WINDOWS_MAX:
                draw = partial(draw_failing_window, window=window)
                window.frame.on_each_sheet(body, draw)
                drawn += 1
        if report.allowed:
            allowed = ", ".join(f"{report.counts[kind]:,} {kind}" for kind in report.allowed)
            note(body, f"Allowed, and not counted: {allowed}.")
        if report.text:
            child(body, "pre", "\n".join(report.text))


def _checks(body: Element, checks: Sequence[Checked]) -> None:
    child(body, "h2", "Checks")
    rows = [[one.model, one.report.verdict.value, one.report.summary] for one in checks]
    _table(body, ["model", "verdict", "what was looked at"], rows, 3)


def _gaps(body: Element, run: ToldRun) -> None:
    child(body, "h2", "Gaps by fault")
    if not run.gaps:
        note(body, "None was measured.")
        return
    rows = [
        [row.kind, row.who, str(row.windows), *(seconds(time_s * 1e9) for time_s in row[5:])]
        for row in run.gaps
    ]
    _table(body, ["fault", "of", "times", "median", "95 %", "longest"], rows, 2)
    note(
        body, "The longest time without an operation that succeeded, from a fault to the next one."
    )


def _functions(body: Element, operations: Sequence[Operation], deliveries: Collection[str]) -> None:
    rows: list[list[str]] = []
    for function in sorted({one.function for one in operations}):
        there = [one for one in operations if one.function == function]
        latencies = [
            one.ended_ns - one.invoked_ns
            for one in there
            if one.ok and one.ended_ns is not None and function not in deliveries
        ]
        spread = quantiles(latencies)
        counts = [sum(one.outcome is type_ for one in there) for type_ in (*EventType,)[1:]]
        times = [seconds(t) if latencies else "-" for t in (spread.p50, spread.p99, spread.longest)]
        rows.append([function, *[f"{count:,}" for count in counts], *times])
    names = ["function", "ok", "failed", "unknown", "median", "99 %", "longest"]
    _table(body, names, rows, 1)


def _deaths(body: Element, run: ToldRun, frame: Frame) -> None:
    child(body, "h2", "Deaths")
    if not run.deaths:
        note(body, "No process died.")
        return
    rows = [
        [
            f"{(death.time_ns - frame.zero_ns) / 1e9:.2f} s",
            death.process,
            "killed" if death.expected else "by itself",
            death.last_line,
            death.done,
        ]
        for death in run.deaths[:DEATHS_MAX]
    ]
    _table(body, ["when", "process", "how", "its last line", "what was done"], rows, 5)
    if len(run.deaths) > DEATHS_MAX:
        child(body, "p", f"The first {DEATHS_MAX} of {len(run.deaths)}.")


def _facts(body: Element, run: ToldRun) -> None:
    child(body, "h2", "The run")
    _table(body, ["setting", "value"], [list(fact) for fact in run.facts], 2)
    if run.left_out:
        child(body, "p", "Left out on this machine:")
        bullets(body, run.left_out)


def _table(body: Element, names: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> None:
    """Add a table whose first `texts` columns are text, and the others figures."""
    kinds = ("text" if at < texts else "number" for at in range(len(names)))
    draw_table(body, list(map(Column, names, kinds)), rows)
