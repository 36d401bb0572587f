"""`make bench-failover`: how long clients wait when the leader is lost, ours and the others'."""

from __future__ import annotations

from pathlib import Path

import click

from bench.one_run import RunFailed
from bench.options import (
    COUNT,
    build_option,
    chosen_keys,
    folder_option,
    json_option,
    markdown_option,
)
from bench.peers.watched import WATCHED, Watched, Watching
from bench.place import make_place
from bench.report import Report, show_tables, tell
from bench.summary import Rows, percentile
from bench.toolchain import Toolchain, Unavailable
from bench.watch import KILL, STOP, Verdict, Watch
from bench.workload import Workload
from dledger.command_line.options import option

FAULTS = (KILL, STOP)
COLUMNS = ["system", "fault", "times", "p50 ms", "p95 ms", "max ms", "acknowledged", "lost"]
HOW = (
    "Three real processes on this machine, and one process with {clients} clients, each of which "
    "appends one body of 256 bytes at a time. From just before the signal to the leader, until the "
    "first acknowledgement of an append that began after it. Afterwards all that was acknowledged "
    "is looked for in the log. A killed process leaves what it wrote in the page cache: this says "
    "nothing about power cuts."
)


class Outcome:
    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.gaps_ms: dict[str, list[float]] = {fault: [] for fault in FAULTS}
        self.verdict: Verdict | None = None

    def rows(self) -> list[list[str]]:
        found = [str(value) for value in self.verdict] if self.verdict else ["", "not checked"]
        return [
            [
                *(self.watched.name, fault, str(len(gaps_ms))),
                *(f"{percentile(gaps_ms, share):,.0f}" for share in (50, 95, 100)),
                *found,
            ]
            for fault, gaps_ms in self.gaps_ms.items()
            if gaps_ms
        ]


def watch_system(
    outcome: Outcome, watching: Watching, times: int, workload: Workload, folder: Path
) -> None:
    """Kill and stop the leader `times` times. Raises RunFailed."""
    place = make_place(folder / outcome.watched.key)
    with Watch(watching, place, workload) as watch:
        for number in range(times):
            for fault in FAULTS:
                took_ms = watch.take_leader(fault)
                told = "no leader was there to lose" if took_ms is None else f"{took_ms:,.0f} ms"
                if took_ms is not None:
                    outcome.gaps_ms[fault].append(took_ms)
                tell(f"{outcome.watched.name}, {fault}, {number + 1}/{times}: {told}")
        outcome.verdict = watch.verdict()


@click.command()
@option(
    "--peers",
    "all, or names of " + ", ".join(each.key for each in WATCHED) + ", with commas.",
    default="all",
)
@option("--times", "Each way.", default=10, type=COUNT)
@click.option("--clients", default=16, show_default=True, type=COUNT)
@folder_option
@build_option
@json_option("figure")
@markdown_option("table")
def failover(
    peers: str,
    times: int,
    clients: int,
    folder: Path,
    build: Path,
    kept: Path | None,
    page: Path | None,
) -> None:
    """Kill and stop leaders under load, and see when clients are served again."""
    known = {each.key: each for each in WATCHED}
    keys = chosen_keys("--peers", peers, list(known), "all")
    toolchain = Toolchain(build, building=lambda what: tell(f"building {what}"))
    workload = Workload(in_flight=clients)
    report = Report(folder)
    outcomes: list[Outcome] = []
    versions: list[str] = []
    with report.run_folder() as base:
        for watched in (known[key] for key in keys):
            outcomes.append(outcome := Outcome(watched))
            try:
                watching = watched.prepare(toolchain)
                versions.append(watching.version)
                watch_system(outcome, watching, times, workload, base)
            except (Unavailable, RunFailed) as error:
                skipped = "is skipped" if isinstance(error, Unavailable) else "failed"
                report.note(f"{watched.name} {skipped}: {error}")
    cells = [row for outcome in outcomes for row in outcome.rows()]
    tables = [Rows("leaders lost under load", COLUMNS, cells)] if cells else []
    shown = [each.watched for each in outcomes if each.rows()]
    whose = "; ".join(f"{each.name}: {each.clients}" for each in shown)
    how = f"{HOW.format(clients=clients)} Clients: {whose}."
    show_tables(tables, how)
    runs = [{"system": o.watched.key, "gaps_ms": o.gaps_ms, "verdict": o.verdict} for o in outcomes]
    report.keep(kept, {"versions": versions, "notes": report.notes, "runs": runs})
    report.write_page(page, [f"{', '.join(versions)}.", how], tables)
    if any(outcome.verdict and outcome.verdict.lost for outcome in outcomes):
        raise click.ClickException("acknowledged entries are missing, see the table")
