"""`jepsen-like run`: chaos on real processes, and whether the service kept its promise."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import click
import trio
from rich.console import Console
from rich.live import Live
from rich.text import Text

from dledger.command_line.options import FOLDER, NumberRange, flag, option
from dledger.command_line.rows import print_table, say
from dledger.command_line.server_signals import ending_signals
from dledger.system_refusals import single
from jepsen_like.chaos.brokers.cpp.installed import CppClientMissing, find_cpp_client
from jepsen_like.chaos.dirty import DIRTY_BROKERS, DIRTY_SERVICES
from jepsen_like.chaos.harness_failed import HarnessFailed
from jepsen_like.chaos.nemeses.users_nemesis import NemesisUnusable, find_nemeses
from jepsen_like.chaos.plan import (
    CALLS_A_SECOND_DEFAULT,
    CLIENT_DEFAULT,
    CPP_CLIENT,
    GRPC_CLIENT,
    TIME_S_MAX,
    RunPlan,
)
from jepsen_like.chaos.run import Progress, Run
from jepsen_like.chaos.service import Described, ServiceUnusable
from jepsen_like.chaos.services import USERS_SERVICE_MARK, find_service
from jepsen_like.chaos.stages.brokers import EXPLANATIONS
from jepsen_like.chaos.told import told_run
from jepsen_like.chaos.verdict import (
    RunVerdict,
    again,
    judge,
    run_file,
    versions,
    write_run_file,
)
from jepsen_like.chaos.workloads.catalogue import WORKLOADS
from jepsen_like.check_command import tell_details
from jepsen_like.report.page import page
from jepsen_like.report.told_run import GapRow, RunExit
from jepsen_like.users_modules import find_users_modules

# Without a terminal: a line after so many seconds.
SECONDS_A_PLAIN_LINE = 10.0
FINDINGS_SHOWN_MAX = 16
EARLY_ACK = "early-ack"
DEFAULT_NEMESES = "kill,freeze,partition"

EPILOG = """\b
Exit status:
  0  nothing was found
  1  violation: the history breaks the promise, or something else was found
  2  undecided: the checker ran out of time, the history does not tell, or
     no fault whose effect is counted had any
  3  the harness failed, and nothing is known

\b
Examples:
  jepsen-like run --workload register --nemesis kill,freeze --time 60 --seed 7 --out run
  jepsen-like run --service my_module:Machine --nemesis partition --nodes 5
  jepsen-like run --workload register --dirty stale-read
`jepsen-like list` explains workloads and nemeses; docs/chaos.md has more.
"""


def _nemeses(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip() not in ("", "none"))


@click.command(epilog=EPILOG)
@option("--workload", "What to do.", type=click.Choice([*WORKLOADS, *EXPLANATIONS]), metavar="NAME")
@option("--service", "Your own state machine, instead of a workload.", metavar="MODULE:CLASS")
@option(
    "--nemesis",
    "nemeses",
    "What to break; `none` for nothing, MODULE:CLASS for a nemesis of yours.",
    default=DEFAULT_NEMESES,
    callback=_nemeses,
    metavar="NAME[,NAME]",
)
@option("--nodes", "Members.", default=3, type=click.IntRange(1, 7))
@option("--time", "time_s", "Seconds.", default=60.0, type=NumberRange(1.0, TIME_S_MAX))
@option("--seed", "Of all choices; drawn unless given.", type=click.IntRange(0))
@option("--out", "A new folder for all files.  [default: chaos-WORKLOAD-SEED]", type=FOLDER)
@flag("--lease", "The leader reads by its lease (max_clock_drift).")
@option(
    "--rate",
    "Calls a second of each client, at most.",
    default=CALLS_A_SECOND_DEFAULT,
    type=NumberRange(0.1, 1000.0),
)
@option(
    "--network",
    "How links are made that can break.",
    default="auto",
    type=click.Choice(["auto", "namespaces", "none"]),
)
@option(
    "--dirty",
    "Make a known mistake in the service or in brokers: the run must find it.",
    type=click.Choice([*DIRTY_SERVICES, *DIRTY_BROKERS]),
    metavar="NAME",
)
@option(
    "--system",
    "Runs a member of another system, in the place of dledger: see docs/other-systems.md.",
    metavar="MODULE",
)
@option(
    "--client",
    "What sends and consumes with the workload messages: cpp is RocketMQ's client of C++, grpc "
    "asks two proxies.",
    default=CLIENT_DEFAULT,
    type=click.Choice([CLIENT_DEFAULT, CPP_CLIENT, GRPC_CLIENT]),
)
@flag("--grown", "The group begins with one member; it adds the others.")
@option(
    "--check-limit-seconds",
    "check_limit_s",
    "For the checker.",
    default=120.0,
    type=NumberRange(1.0),
)
def run(
    workload: str | None,
    service: str | None,
    nemeses: tuple[str, ...],
    nodes: int,
    time_s: float,
    seed: int | None,
    out: Path | None,
    lease: bool,
    rate: float,
    network: str,
    dirty: str | None,
    system: str | None,
    client: str,
    grown: bool,
    check_limit_s: float,
) -> None:
    """Break a group of real processes on purpose, and check what clients saw.

    Starts the members of a group and clients as processes, breaks things as the seed decides, heals
    all, reads once more from each member, and checks the recorded history.
    """
    if (workload is None) == (service is None):
        raise click.UsageError("name one of --workload and --service")
    name = workload or service or ""
    if seed is None:
        seed = time.time_ns() % 1_000_000
    find_users_modules()
    try:
        find_nemeses(nemeses)
        if name not in EXPLANATIONS:
            _check_dirty(find_service(name), dirty)
    except (NemesisUnusable, ServiceUnusable) as error:
        raise click.UsageError(str(error)) from error
    if dirty is not None and (dirty in DIRTY_BROKERS) != (name in EXPLANATIONS):
        whose = "brokers" if dirty in DIRTY_BROKERS else "services"
        raise click.UsageError(f"--dirty {dirty} is a mistake of {whose}: name such a workload")
    if system is not None and (dirty is not None or name in EXPLANATIONS):
        raise click.UsageError("--system goes with a workload of the library, and without --dirty")
    if system is not None and not _is_there(system):
        raise click.UsageError(f"there is no module {system}")
    if client != CLIENT_DEFAULT and name != "messages":
        raise click.UsageError(f"--client {client} goes with --workload messages")
    if client == CPP_CLIENT:
        try:
            find_cpp_client()
        except CppClientMissing as error:
            raise click.UsageError(str(error)) from error
    folder = out or Path(f"chaos-{name.replace(':', '-')}-{seed}")
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty: name another folder with --out")
    plan = RunPlan(
        name, nemeses, nodes, time_s, seed, lease, rate, network, dirty, system, client, grown
    )
    command = again(plan, "--workload" if workload else "--service")
    with _harness_failures():
        folder.mkdir(parents=True, exist_ok=True)
        verdict = _made(plan, folder, command, check_limit_s)
    sys.exit(verdict.exit)


def _made(plan: RunPlan, folder: Path, command: str, check_limit_s: float) -> RunVerdict:
    """Make a run, and tell its result."""
    os.environ["XDG_STATE_HOME"] = str(folder.absolute() / "state")  # for the members
    click.echo(f"{command}\nfiles in {folder}", err=True)
    drawing = _Drawing()
    one = Run(plan, folder, drawing.tell)
    write_run_file(folder, run_file(plan, command, one.schedule))
    try:
        with drawing:
            trio.run(_stoppable, one)
    except BaseException:
        write_run_file(folder, run_file(plan, command, one.schedule, one.result))
        raise
    verdict = judge(one, check_limit_s)
    write_run_file(folder, run_file(plan, command, one.schedule, one.result, verdict))
    told = told_run(plan, command, one.result, verdict, verdict.operations, versions())
    (folder / "report.html").write_text(page(told), encoding="utf-8")
    _report(one, verdict, folder, command)
    return verdict


@contextmanager
def _harness_failures() -> Iterator[None]:
    """End the process with the status of a harness that failed, whatever the block raises.

    An error that is no HarnessFailed, and that the system has not raised, keeps its traceback.
    """
    try:
        yield
    except Exception as error:
        found = list(single(error))
        if not all(isinstance(each, HarnessFailed | OSError) for each in found):
            traceback.print_exc()
        for each in found:
            click.echo(f"the harness failed: {each}", err=True)
        sys.exit(RunExit.HARNESS_FAILED)


def _check_dirty(service: Described, dirty: str | None) -> None:
    """Refuse a mistake that a user's service cannot make."""
    if dirty == EARLY_ACK and USERS_SERVICE_MARK in service.name and service.reads_results:
        raise click.UsageError(
            f"--dirty {EARLY_ACK} acknowledges before there is a result, and answered() of "
            f"{service.name} needs one: try --dirty stale-read"
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a package in the name is missing, or it is no name
        return False


async def _stoppable(one: Run) -> None:
    """Run; the first Ctrl-C ends the faults, the second one everything."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, one, nursery.cancel_scope)
        await one.run()
        nursery.cancel_scope.cancel()


async def _stop_on_signal(one: Run, scope: trio.CancelScope) -> None:
    with ending_signals() as signals:
        async for _ in signals:
            if one.result.interrupted:
                one.result.aborted = True
                scope.cancel()
            one.stop()


class _Drawing:
    """Shows the progress: a line that changes in a terminal, a line now and then in a pipe."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live = (
            Live(Text(""), console=self._console, transient=True)
            if self._console.is_terminal
            else None
        )
        self._told_s = float("-inf")

    def __enter__(self) -> _Drawing:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, now: Progress) -> None:
        counts = ", ".join(f"{now.counts.get(name, 0)} {name}" for name in ("ok", "fail", "info"))
        broken = "; ".join(now.broken) or "-"
        line = f"{now.phase} {now.now_s:5.1f}/{now.until_s:.0f} s  {counts}  broken: {broken}"
        if now.findings:
            line += f"  FINDINGS: {now.findings}"
        if self._live is not None:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"))
        elif now.now_s - self._told_s >= SECONDS_A_PLAIN_LINE:
            self._told_s = now.now_s
            click.echo(line, err=True)


def _report(one: Run, verdict: RunVerdict, folder: Path, command: str) -> None:
    if verdict.statistics is not None and verdict.statistics.report is not None:
        for line in verdict.statistics.report.text:
            say(f"  {line}")
    if verdict.gaps:
        _tell_gaps(verdict.gaps)
    findings = [*one.result.findings, *one.result.unanswered]
    for finding in findings[:FINDINGS_SHOWN_MAX]:
        say(f"found: {finding}")
    if len(findings) > FINDINGS_SHOWN_MAX:
        say(f"found: {len(findings) - FINDINGS_SHOWN_MAX} more, in {folder / 'run.json'}")
    for doubt in verdict.doubts[:FINDINGS_SHOWN_MAX]:
        say(f"in doubt: {doubt}")
    if verdict.checked is not None and verdict.checked.report is not None:
        checked = verdict.checked
        report = verdict.checked.report
        say(f"{one.history.name}: {checked.verdict} ({checked.model}): {report.summary}")
        if checked.model != "statistics":
            tell_details(report)
    words = verdict.exit.name.lower().replace("_", " ")
    say(f"{words}: {verdict.reason}")
    say(f"report: {folder / 'report.html'}")
    if verdict.exit is not RunExit.NOTHING_FOUND:
        say(f"again: {command}")


def _tell_gaps(rows: Sequence[GapRow]) -> None:
    names = ("fault", "clients", "times", "gaps", "median s", "p95 s", "max s", "cut off")
    cells = [
        (
            *(row.kind, row.who, row.windows, row.gaps),
            *(row.median_s, row.p95_s, row.max_s, row.unended),
        )
        for row in rows
    ]
    title = "longest time without an answer, by fault"
    print_table(
        names,
        cells,
        words=names[:2],
        pipe_title=f"{title}:\n" + "\t".join(names),
        title=title,
        title_justify="left",
    )
