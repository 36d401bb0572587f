"""`python -m bench.distance`: the effect of long round trips on a group of three."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import click

import dledger
from bench.disk_limit import write_and_sync
from bench.distant_group import (
    DistantGroup,
    delayed_links,
    election_timeout_ms,
    member_command,
)
from bench.distant_member import MEASURE, RESUME
from bench.one_run import RunFailed, measure
from bench.options import COUNT, SECONDS, folder_option, json_option, markdown_option
from bench.place import make_place
from bench.plan import PlanInvalid, numbers
from bench.report import Report, show_tables, tell
from bench.summary import Rows, percentile
from bench.workload import Measured, Workload
from dledger.command_line.options import option

ROUND_TRIPS = "0,60,150,300"
# A stationary satellite is 600 ms away, there and back.
MOST_ROUND_TRIP_MS = 2_000
# As many as a leader takes by default.
MOST_IN_FLIGHT = 10_000
# The first windows of a new leader, which compares logs and measures its peers' answers.
WARM_UP_S, WARM_UP_ROUND_TRIPS = 2.0, 10
SYNC_S = 0.5
OUTAGES_IN_FLIGHT = 16
# The promise of a group without a distance.
LONG_OUTAGE_MS = 1_500.0
MS_PER_S = 1000.0

RATES = "appends over links with a round trip"
RATE_COLUMNS = ["round trip ms", "entries/s", "p50 ms", "p99 ms", "failed", "of the window"]
OUTAGES = "leaders killed over such links"
OUTAGE_COLUMNS = [
    *("round trip ms", "election timeout ms", "times", "p50 ms", "p95 ms", "max ms"),
    f"above {LONG_OUTAGE_MS / MS_PER_S:g} s",
]
HOW = (
    "Three real processes on this machine; a fourth carries what they send one another, and keeps "
    "it for half a round trip, also at 0 ms. Bodies of {body_bytes} bytes, {in_flight} in flight "
    "in the leader's process. The window allows so many entries in each round trip and sync of "
    "one entry ({sync_ms:.2f} ms on this disk)."
)
HOW_OUTAGES = (
    "Outages: from just before `kill -9` of the leader to the first acknowledgement of an append "
    "that the next leader makes in its own process; {in_flight} in flight. The links still take "
    "connections for it, as a router does for a machine that is gone, so the members wait for "
    "their election timers."
)


class Distance:
    def __init__(self, round_trip_ms: int) -> None:
        self.round_trip_ms = round_trip_ms
        self.measured: Measured | None = None
        self.outages_ms: list[float] = []

    def to_json(self) -> dict[str, object]:
        rate = None if self.measured is None else asdict(self.measured)
        figures = {"rate": rate, "outages_ms": self.outages_ms}
        return {"round_trip_ms": self.round_trip_ms, **figures}

    def rate_row(self, in_flight: int, sync_ms: float) -> list[str]:
        if self.measured is None:
            return [str(self.round_trip_ms), "failed", "", "", "", ""]
        found = self.measured
        share = found.entries_per_s / window_rate(in_flight, self.round_trip_ms, sync_ms)
        return [
            *(str(self.round_trip_ms), f"{found.entries_per_s:,.0f}"),
            *(f"{found.median_ms:,.1f}", f"{found.p99_ms:,.1f}", str(found.failed)),
            f"{share * 100:.0f} %"
            if self.round_trip_ms
            else "",  # there the processor is the limit
        ]

    def outage_row(self) -> list[str]:
        times = self.outages_ms
        long = sum(each > LONG_OUTAGE_MS for each in times)
        return [
            *(str(self.round_trip_ms), str(election_timeout_ms(self.round_trip_ms))),
            str(len(times)),
            *(f"{percentile(times, share):,.0f}" for share in (50, 95, 100)),
            f"{long / len(times) * 100:.0f} %",
        ]


def window_rate(in_flight: int, round_trip_ms: float, sync_ms: float) -> float:
    """Return the entries a second that round trip and sync allow with `in_flight` entries."""
    return in_flight / (round_trip_ms + sync_ms) * MS_PER_S


def measured_sync_ms(folder: Path, body_bytes: int) -> float:
    """Return the median of writing and syncing one entry to a file in that folder."""
    work = Workload(in_flight=1, body_bytes=body_bytes, warm_up_s=0.0, measured_s=SYNC_S)
    return median(write_and_sync(folder / "sync", work, lambda: None)) * MS_PER_S


def measure_rate(distance: Distance, workload: Workload, folder: Path) -> None:
    """Raises RunFailed."""
    place = make_place(folder / f"rate-{distance.round_trip_ms}")
    round_trip_ms = distance.round_trip_ms
    with delayed_links(place, round_trip_ms):
        commands = [
            member_command(place, node_id, MEASURE, round_trip_ms, workload)
            for node_id in place.peers
        ]
        measured_s = workload.warm_up_s + workload.measured_s
        distance.measured = measure(commands, place.folder / "complaints", measured_s)


def measure_outages(distance: Distance, times: int, workload: Workload, folder: Path) -> None:
    """Kill the leader of a new group `times` times. Raises RunFailed."""
    place = make_place(folder / f"outages-{distance.round_trip_ms}")
    with (
        delayed_links(place, distance.round_trip_ms),
        DistantGroup(place, distance.round_trip_ms, workload, RESUME) as group,
    ):
        for number in range(times):
            took_ms = group.lose_leader()
            told = "no leader was there to lose" if took_ms is None else f"{took_ms:,.0f} ms"
            if took_ms is not None:
                distance.outages_ms.append(took_ms)
            tell(f"{distance.round_trip_ms} ms, outage {number + 1}/{times}: {told}")


def tables_of(distances: Sequence[Distance], in_flight: int, sync_ms: float) -> list[Rows]:
    rates = [each.rate_row(in_flight, sync_ms) for each in distances]
    outages = [each.outage_row() for each in distances if each.outages_ms]
    tables = [Rows(RATES, RATE_COLUMNS, rates), Rows(OUTAGES, OUTAGE_COLUMNS, outages)]
    return [each for each in tables if each.cells]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@option("--round-trips", "Milliseconds.", default=ROUND_TRIPS)
@option("--in-flight", "Entries in flight.", default=1000, type=click.IntRange(1, MOST_IN_FLIGHT))
@option("--bodies", "body_bytes", "Size of bodies, bytes.", default=256, type=COUNT)
@option("--seconds", "measured_s", "Measured time of each run.", default=5.0, type=SECONDS)
@option(
    "--elections",
    "How often the leader is killed at each round trip.",
    default=0,
    type=click.IntRange(0),
)
@folder_option
@json_option("figure")
@markdown_option("tables")
def main(
    round_trips: str,
    in_flight: int,
    body_bytes: int,
    measured_s: float,
    elections: int,
    folder: Path,
    kept: Path | None,
    page: Path | None,
) -> None:
    """Measure appends, and the loss of leaders, where members are far from one another."""
    try:
        distances = [Distance(each) for each in dict.fromkeys(numbers(round_trips, least=0))]
    except PlanInvalid as error:
        raise click.UsageError(str(error)) from None
    if max(each.round_trip_ms for each in distances) > MOST_ROUND_TRIP_MS:
        raise click.UsageError(f"--round-trips {round_trips}: at most {MOST_ROUND_TRIP_MS} ms")
    report = Report(folder)
    resumed = Workload(in_flight=OUTAGES_IN_FLIGHT, body_bytes=body_bytes)
    one_sync_ms = math.nan
    with report.run_folder() as base:
        one_sync_ms = measured_sync_ms(base, body_bytes)
        for distance in distances:
            warm_up_s = WARM_UP_S + WARM_UP_ROUND_TRIPS * distance.round_trip_ms / MS_PER_S
            work = Workload(in_flight, body_bytes, warm_up_s=warm_up_s, measured_s=measured_s)
            try:
                measure_rate(distance, work, base)
                if elections:
                    measure_outages(distance, elections, resumed, base)
            except RunFailed as error:
                report.note(f"{distance.round_trip_ms} ms failed: {error}")
    tables = tables_of(distances, in_flight, one_sync_ms)
    how = HOW.format(body_bytes=body_bytes, in_flight=in_flight, sync_ms=one_sync_ms)
    if elections:
        how = f"{how} {HOW_OUTAGES.format(in_flight=OUTAGES_IN_FLIGHT)}"
    show_tables(tables, how)
    version = f"dledger {dledger.__version__}"
    figures = {
        "versions": [version],
        "notes": report.notes,
        "in_flight": in_flight,
        "body_bytes": body_bytes,
        "sync_ms": one_sync_ms,
        "runs": [each.to_json() for each in distances],
    }
    report.keep(kept, figures)
    report.write_page(page, [f"{version}.", how], tables)


if __name__ == "__main__":
    main()
