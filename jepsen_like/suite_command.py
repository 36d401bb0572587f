"""`jepsen-like suite`: many runs one after another, and a table of their results."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import trio

from dledger.command_line.options import FOLDER, NumberRange, option
from dledger.command_line.rows import print_table, say
from jepsen_like.chaos.plan import TIME_S_MAX, typed
from jepsen_like.chaos.suites.catalogue import SUITES, Planned, planned
from jepsen_like.chaos.suites.made_run import MadeRun
from jepsen_like.chaos.suites.series import Series
from jepsen_like.chaos.suites.suite_folder import OtherSuite, SuiteFolder, SuitePlan
from jepsen_like.chaos.watcher.watched import watched
from jepsen_like.chaos.whole_file import write_whole
from jepsen_like.report.suite_page import SuiteRun, suite_page
from jepsen_like.report.told_run import RunExit

TIME_S_DEFAULT = 45.0
SECONDS_AN_HOUR = 3600.0
INDEX_FILE = "index.html"
NAMES = (
    "run",
    "workload",
    "nemeses",
    "members",
    "operations",
    "verdict",
    "longest gap of writes, after",
    "p50 s",
    "p95 s",
    "max s",
)
TEXTS = ("run", "workload", "nemeses", "verdict", "longest gap of writes, after")
# The worst first: a suite with such a run ends with its status.
WORST_FIRST = (RunExit.VIOLATION, RunExit.HARNESS_FAILED, RunExit.UNDECIDED)

EPILOG = """\b
Suites:
{suites}

\b
Exit status:
  0  nothing was found
  1  a run found something
  2  a run is undecided, or Ctrl-C left runs unmade
  3  the harness failed in a run

\b
Examples:
  jepsen-like suite chaos --seed 7 --out chaos
  jepsen-like suite partition disk --hours 8 --out soak
""".format(suites="\n".join(f"  {name:<11} {one.explanation}" for name, one in SUITES.items()))


@click.command(epilog=EPILOG)
@click.argument(
    "names", nargs=-1, required=True, type=click.Choice(list(SUITES)), metavar="NAME..."
)
@option(
    "--out",
    "The folder of all runs. Runs that are finished in it are not made again.  "
    "[default: suite-NAMES-SEED]",
    type=FOLDER,
)
@option(
    "--seed",
    "Of the first run; the next one has the next seed.  [default: that of --out, or drawn]",
    type=click.IntRange(0),
)
@option(
    "--time",
    "time_s",
    "Seconds with faults, of each run.",
    default=TIME_S_DEFAULT,
    type=NumberRange(1.0, TIME_S_MAX),
)
@option(
    "--rounds",
    "How often all runs are made.  [default: once, or as often as --hours allows]",
    type=click.IntRange(1),
)
@option("--hours", "No run begins after so many hours.", type=NumberRange(0.0))
@option(
    "--network",
    "As of `jepsen-like run`.",
    default="auto",
    type=click.Choice(["auto", "namespaces", "none"]),
)
def suite(
    names: tuple[str, ...],
    out: Path | None,
    seed: int | None,
    time_s: float,
    rounds: int | None,
    hours: float | None,
    network: str,
) -> None:
    """Make many runs one after another, and print a table.

    Each run is one of `jepsen-like run`. With the same folder, a suite that was stopped goes on.
    """
    try:
        begun = SuiteFolder(out).begun_plan() if out is not None else None
        if seed is None:
            seed = time.time_ns() % 1_000_000 if begun is None else begun.seed
        plan = SuitePlan(names, seed, time_s, network)
        folder = SuiteFolder(out or Path(f"suite-{'-'.join(names)}-{seed}"))
        folder.begin(plan)
    except OtherSuite as error:
        raise click.UsageError(f"{error}: name another folder with --out") from error
    if rounds is None and hours is None:
        rounds = 1
    command = _again(plan, folder, rounds)
    click.echo(f"{command}\nfiles in {folder.path}", err=True)

    def ended(made: MadeRun) -> None:
        click.echo(f"  {made.verdict}: {made.reason}", err=True)
        _write(folder, plan, command, series.runs)

    series = Series(folder, plan, _tell_begin, ended)
    budget_s = float("inf") if hours is None else hours * SECONDS_AN_HOUR
    with watched():
        trio.run(_made, series, planned(names, seed, rounds), budget_s)
    _write(folder, plan, command, series.runs)
    _tell_table(series.runs)
    _tell_findings(series.runs)
    say(f"reports: {folder.path / INDEX_FILE}")
    sys.exit(_exit_of(series.runs, stopped=series.stopped))


async def _made(series: Series, runs: Iterable[Planned], budget_s: float) -> None:
    await series.make(runs, trio.current_time() + budget_s)


def _again(plan: SuitePlan, folder: SuiteFolder, rounds: int | None) -> str:
    words = ["jepsen-like", "suite", *plan.suites, "--seed", str(plan.seed)]
    words += ["--time", typed(plan.time_s)]
    if plan.network != "auto":
        words += ["--network", plan.network]
    if rounds is not None and rounds > 1:
        words += ["--rounds", str(rounds)]
    return shlex.join([*words, "--out", str(folder.path)])


def _exit_of(runs: Sequence[MadeRun], *, stopped: bool) -> RunExit:
    codes = {run.exit_code for run in runs}
    for code in WORST_FIRST:
        if code in codes:
            return code
    return RunExit.UNDECIDED if stopped else RunExit.NOTHING_FOUND


def _write(folder: SuiteFolder, plan: SuitePlan, command: str, runs: Sequence[MadeRun]) -> None:
    folder.write(plan, runs)
    rows = [
        SuiteRun(
            run.name,
            run.workload,
            run.nemeses,
            run.nodes,
            run.operations,
            RunExit(run.exit_code),
            run.reason,
            _page_of(folder, run),
            _gap_cells(run),
        )
        for run in runs
    ]
    outcome = _exit_of(runs, stopped=False)
    title = f"Suite of {', '.join(plan.suites)}"
    write_whole(folder.path / INDEX_FILE, suite_page(title, command, outcome, rows))


def _page_of(folder: SuiteFolder, run: MadeRun) -> str:
    """Return the report of a run, or its output if it has no report."""
    report = f"{run.name}/report.html"
    return report if (folder.path / report).exists() else f"{run.name}.txt"


def _tell_begin(run: Planned) -> None:
    row = run.row
    click.echo(f"{run.name} {row.nemeses}, {row.nodes} members, seed {run.seed}", err=True)


def _gap_cells(run: MadeRun) -> tuple[str, ...]:
    if run.worst is None:
        return ("-",) * 4
    figures = (run.worst.median_s, run.worst.p95_s, run.worst.max_s)
    return (run.worst.kind, *(f"{figure:.2f}" for figure in figures))


def _tell_table(runs: Sequence[MadeRun]) -> None:
    cells = [
        (
            run.name,
            run.workload,
            run.nemeses,
            str(run.nodes),
            str(run.operations),
            run.verdict,
            *_gap_cells(run),
        )
        for run in runs
    ]
    print_table(NAMES, cells, words=TEXTS, pipe_title="\t".join(NAMES), no_wrap=False)


def _tell_findings(runs: Sequence[MadeRun]) -> None:
    for run in runs:
        if run.exit_code:
            say(f"{run.name}: {run.verdict}: {run.reason}")
            if run.again:
                say(f"again: {run.again}")
