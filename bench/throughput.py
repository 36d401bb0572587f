"""`make bench`: appends a second, ours and the others', in turn on the same machine."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from bench.machine import Machine, touch_memory
from bench.one_run import RunFailed, measure
from bench.options import (
    COUNT,
    SECONDS,
    WARM_UP,
    build_option,
    folder_option,
    json_option,
    markdown_option,
)
from bench.place import make_place
from bench.plan import (
    Contender,
    PlanInvalid,
    Point,
    Run,
    choices,
    chosen,
    numbers,
    plan,
    planned_s,
)
from bench.report import Report, show_tables, tell
from bench.summary import Rows, table_of_size
from bench.system import Prepared, System
from bench.systems import SYSTEMS
from bench.toolchain import Toolchain, Unavailable
from bench.workload import Measured, Workload
from dledger.command_line.options import flag, option

BODIES, IN_FLIGHT, ROUNDS, MEASURED_S = "16,256,4096", "1,16,256,1000,4096", 3, 5.0
PEERS = choices([each.contender for each in SYSTEMS])
QUICK_BODIES, QUICK_IN_FLIGHT = "256", "1000"

HOW = (
    "Three real processes each on this machine, over loopback, data on one disk. The load is made "
    "in the leader's process, or by clients beside it that speak to the leader alone (etcd, NATS): "
    "the best case for each. A system that syncs has an entry on the disks of a quorum before it "
    "acknowledges; one that does not may lose what it acknowledged when the power goes. Rates are "
    "medians over the rounds, the systems in turn. The limit is the same bytes written and synced "
    "into three files at once, as many at a time as are in flight."
)

TOUCHED = "Before each run {mib:,} MiB of memory were touched, so that the host had given them."


class Grid:
    def __init__(self, contenders: list[Contender], points: list[Point]) -> None:
        self.contenders = contenders
        self.points = points
        self.versions: list[str] = []
        self.runs: list[dict[str, object]] = []
        self.results: dict[tuple[Point, str], list[Measured]] = {}
        self.began = time.strftime("%Y-%m-%d %H:%M")

    def add(self, run: Run, result: Measured) -> None:
        self.results.setdefault((run.point, run.contender.key), []).append(result)
        row = {"round": run.round, "system": run.contender.key, **run.point._asdict()}
        self.runs.append({**row, **asdict(result)})

    def tables(self) -> list[Rows]:
        """One table for each size of bodies with results."""
        sizes = dict.fromkeys(point.body_bytes for point in self.points)
        in_flight = list(dict.fromkeys(point.in_flight for point in self.points))
        tables = [table_of_size(s, in_flight, self.contenders, self.results) for s in sizes]
        return [each for each in tables if each.cells]

    def figures(self, notes: list[str]) -> dict[str, object]:
        return {
            "began": self.began,
            "versions": self.versions,
            "notes": notes,
            "runs": self.runs,
        }


def prepare(
    systems: list[System], toolchain: Toolchain, grid: Grid, report: Report
) -> dict[str, Prepared]:
    """Return the systems whose programs are there, by key; add a note for each other one."""
    found: dict[str, Prepared] = {}
    for system in systems:
        contender = system.contender
        try:
            found[contender.key] = prepared = system.prepare(toolchain)
        except Unavailable as error:
            report.note(f"{contender.name} is skipped: {error}")
            continue
        if prepared.version and prepared.version not in grid.versions:
            grid.versions.append(prepared.version)
    return found


def one(run: Run, prepared: Prepared, measured_s: float, folder: Path) -> Measured:
    """Carry out one run in a new folder, and remove the folder. Raises RunFailed."""
    contender = run.contender
    workload = Workload(
        in_flight=run.point.in_flight,
        body_bytes=run.point.body_bytes,
        call=contender.call,
        batch=contender.batch,
        warm_up_s=contender.warm_up_s,
        measured_s=measured_s,
    )
    place = make_place(folder / "run")
    try:
        commands = prepared.commands(place, workload)
        complaints = folder / "complaints"
        return measure(commands, complaints, contender.warm_up_s + measured_s)
    finally:
        shutil.rmtree(place.folder)


def carry_out(
    runs: list[Run],
    prepared: dict[str, Prepared],
    measured_s: float,
    memory_mib: int,
    folder: Path,
    grid: Grid,
    report: Report,
    kept: Path | None,
) -> None:
    """Carry out all runs; a failure becomes a note. `kept` is rewritten after each.

    `memory_mib`: memory that is touched before each.
    """
    console = Console(stderr=True)
    columns = (
        *(BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn()),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=len(runs))
        for number, run in enumerate(runs, start=1):
            where = f"{run.point.body_bytes} B, {run.point.in_flight} in flight"
            what = f"{run.contender.name}, {where}"
            progress.update(bar, description=what)
            touch_memory(memory_mib)
            try:
                result = one(run, prepared[run.contender.key], measured_s, folder)
                grid.add(run, result)
                told = f"{result.entries_per_s:,.0f}/s"
            except RunFailed as error:
                told = f"failed: {error}"
                report.notes.append(f"{what}, round {run.round + 1}: {error}")
            if not console.is_terminal:
                tell(f"{number}/{len(runs)} {what}: {told}")
            progress.advance(bar)
            report.keep(kept, grid.figures(report.notes))


def _check_memory(memory_mib: int, machine: Machine) -> None:
    """Refuse more than half of the memory: the systems need the rest. Raises click.UsageError."""
    most_mib = int(machine.memory_gib * 1024 / 2)
    if memory_mib > most_mib:
        raise click.UsageError(f"--touch-memory {memory_mib}: at most {most_mib} here, half of all")


@click.command()
@option("--peers", f"Beside ours: all, none, or with commas: {', '.join(PEERS)}.", default="all")
@option("--bodies", "Sizes of bodies, bytes.", default=BODIES)
@option("--in-flight", "Entries in flight.", default=IN_FLIGHT)
@click.option("--rounds", default=ROUNDS, show_default=True, type=COUNT)
@option("--seconds", "measured_s", "Measured time of each run.", default=MEASURED_S, type=SECONDS)
@option("--warm-up", "warm_up_s", "Seconds before; default 2, for Java 15.", type=WARM_UP)
@option(
    "--touch-memory",
    "memory_mib",
    "MiB touched before each run, where a host gives memory at the first touch.",
    default=0,
    type=click.IntRange(0),
    show_default=False,
)
@flag("--quick", "256 bytes, 1000 in flight, everyone, one round.")
@folder_option
@build_option
@json_option("run")
@markdown_option("tables")
def throughput(
    peers: str,
    bodies: str,
    in_flight: str,
    rounds: int,
    measured_s: float,
    warm_up_s: float | None,
    memory_mib: int,
    quick: bool,
    folder: Path,
    build: Path,
    kept: Path | None,
    page: Path | None,
) -> None:
    """Measure appends a second of three real processes, beside other systems and the disk."""
    if quick:
        bodies, in_flight, rounds = QUICK_BODIES, QUICK_IN_FLIGHT, 1
    contenders = [each.contender for each in SYSTEMS]
    try:
        wanted = chosen(peers, contenders)
        points = [Point(b, n) for b in numbers(bodies) for n in numbers(in_flight)]
    except PlanInvalid as error:
        raise click.UsageError(str(error)) from None
    report = Report(folder)
    if warm_up_s is not None:
        wanted = [each._replace(warm_up_s=warm_up_s) for each in wanted]
    grid = Grid(wanted, points)
    _check_memory(memory_mib, report.machine)
    toolchain = Toolchain(build, building=lambda what: tell(f"building {what}"))
    keys = {each.key for each in wanted}
    prepared = prepare([s for s in SYSTEMS if s.contender.key in keys], toolchain, grid, report)
    runs = plan(rounds, points, [each for each in wanted if each.key in prepared])
    minutes = planned_s(runs, measured_s) / 60
    tell(f"{len(runs)} runs, about {minutes:.0f} minutes")
    skipped = len(report.notes)
    with report.run_folder() as base:
        try:
            carry_out(runs, prepared, measured_s, memory_mib, base, grid, report, kept)
        except KeyboardInterrupt:
            report.notes.append(f"stopped after {len(grid.runs)} of {len(runs)} runs")
    how = HOW if memory_mib == 0 else f"{HOW} {TOUCHED.format(mib=memory_mib)}"
    show_tables(grid.tables(), how)
    for note in report.notes[skipped:]:
        tell(note)
    rounds_done = f"{rounds} rounds of {measured_s:g} s each, begun {grid.began}."
    report.write_page(page, [f"{', '.join(grid.versions)}.", how, rounds_done], grid.tables())
