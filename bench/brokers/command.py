"""`make bench-broker`: our brokers beside RocketMQ's, with RocketMQ's own client as the load."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import click

from bench.brokers.bench import Bench, Figure, Row, Scale, middle
from bench.brokers.group import BrokerGroup, Brokers
from bench.brokers.null import KEY as NULL
from bench.brokers.null import null_broker
from bench.brokers.ours import OURS
from bench.brokers.rocketmq import (
    Load,
    grpc_loads,
    load_program,
    rocketmq,
    rocketmq_by_proxy,
)
from bench.brokers.rows import ROWS
from bench.one_run import RunFailed
from bench.options import (
    COUNT,
    SECONDS,
    build_option,
    chosen_keys,
    folder_option,
    json_option,
    markdown_option,
)
from bench.report import Report, show_tables, tell
from bench.summary import Rows
from bench.toolchain import Toolchain, Unavailable
from dledger.command_line.options import option

HOW = (
    "Three processes and a name server each on this machine, over loopback, data on one disk; one "
    "kind of brokers after the other. Ours answer when a message is synced on two of three; "
    "RocketMQ's (DLedger mode) sync by a timer. The load for both is RocketMQ's Java client, or a "
    "client of gRPC, which asks a proxy. The ratio is how many times better ours are. The null "
    "broker answers at once and keeps nothing; it shows what the load can do at most, and the "
    "share is ours of that."
)
_PEERS = ("java", "java5", "null")
_KEYS = [row.key for row in ROWS]


class Results:
    def __init__(self) -> None:
        self.figures: dict[str, dict[str, list[Figure]]] = {}

    def add(self, brokers: Brokers, figures: Sequence[Figure]) -> None:
        mine = self.figures.setdefault(brokers.key, {})
        for figure in figures:
            mine.setdefault(figure.name, []).append(figure)

    def table(self, kinds: Sequence[Brokers]) -> Rows:
        """One row a figure: medians over the rounds, and our ratio to the other brokers."""
        names = dict.fromkeys(name for mine in self.figures.values() for name in mine)
        compared = {each.key: _COMPARED.get(each.key, ("ratio", ratio)) for each in kinds[1:]}
        columns = ["what", *(each.name for each in kinds), *(one for one, _ in compared.values())]
        cells = []
        for name in names:
            found = {each.key: self._median(each, name) for each in kinds}
            ours = found[kinds[0].key]
            row = [name, *("" if one is None else in_words(one) for one in found.values())]
            row += [how(ours, found[key]) for key, (_, how) in compared.items()]
            cells.append(row)
        return Rows("Brokers", columns, cells)

    def values(self) -> dict[str, dict[str, list[float]]]:
        return {
            key: {name: [one.value for one in figures] for name, figures in mine.items()}
            for key, mine in self.figures.items()
        }

    def _median(self, brokers: Brokers, name: str) -> Figure | None:
        found = self.figures.get(brokers.key, {}).get(name)
        return middle(found) if found else None


def in_words(figure: Figure) -> str:
    """Return a value with its unit: `14,500 a second`, `4.20 ms`."""
    digits = 0 if figure.value >= 100 else 1 if figure.value >= 10 else 2
    return f"{figure.value:,.{digits}f} {figure.unit}"


def ratio(ours: Figure | None, theirs: Figure | None) -> str:
    """Return how many times better our figure is."""
    if ours is None or theirs is None or not ours.value or not theirs.value:
        return ""
    better = ours.value / theirs.value
    return f"{better if ours.more_is_better else 1 / better:.2g} x"


def share(ours: Figure | None, most: Figure | None) -> str:
    """Return our share of the highest rate that the load reaches; empty for other figures."""
    if ours is None or most is None or not most.value or not ours.more_is_better:
        return ""
    return f"{ours.value / most.value:.0%}"


_COMPARED: dict[str, tuple[str, Callable[[Figure | None, Figure | None], str]]] = {
    NULL: ("share", share)
}


def _is_measured(row: Row, brokers: Brokers) -> bool:
    if brokers.key == OURS.key:
        return True
    if brokers.key == NULL:
        return row.load_alone
    return not row.only_ours and row.by_proxy == brokers.is_behind_proxy


def measure(
    brokers: Brokers,
    rows: Sequence[Row],
    load: Load | None,
    scale: Scale,
    folder: Path,
    results: Results,
    report: Report,
    grpc: Mapping[str, Load] = MappingProxyType({}),
) -> None:
    """Start a group, measure all rows, end it. A failure becomes a note."""
    is_ours = brokers.key == OURS.key
    try:
        with BrokerGroup(brokers, folder / brokers.key) as group:
            bench = Bench(group, load, scale, folder, is_ours, grpc)
            for row in rows:
                if not _is_measured(row, brokers):
                    continue
                try:
                    figures = row.measure(bench)
                except RunFailed as error:
                    report.note(f"{brokers.name}, {row.what}: {error}")
                    continue
                results.add(brokers, figures)
                for figure in figures:
                    tell(f"{brokers.name}, {figure.name}: {in_words(figure)}")
    except RunFailed as error:
        report.note(f"{brokers.name}: {error}")
    finally:
        shutil.rmtree(folder / brokers.key, ignore_errors=True)


@click.command()
@option("--rows", f"Or of {', '.join(_KEYS)}.", default="all")
@option(
    "--peers",
    "What is measured beside ours: RocketMQ's brokers (java), its proxy before brokers of its "
    "version (java5), the load alone (null); or none.",
    default="java,java5,null",
)
@click.option("--rounds", default=1, show_default=True, type=COUNT)
@option("--seconds", "measured_s", "Of each rate.", default=Scale().measured_s, type=SECONDS)
@option("--rate", "Of the rows that travel.", default=Scale().rate, type=COUNT)
@click.option("--backlog", default=Scale().backlog, show_default=True, type=COUNT)
@click.option("--delayed", default=Scale().delayed, show_default=True, type=COUNT)
@click.option("--topics", default=Scale().topics, show_default=True, type=COUNT)
@click.option("--connections", default=Scale().connections, show_default=True, type=COUNT)
@click.option("--polls", default=Scale().polls, show_default=True, type=COUNT)
@option(
    "--polled",
    "polled_s",
    "Seconds for which receives wait.",
    default=Scale().polled_s,
    type=SECONDS,
)
@click.option(
    "--lite-topics", default=Scale().lite_topics, show_default=True, type=click.IntRange(1000)
)
@click.option("--kills", default=Scale().kills, show_default=True, type=COUNT)
@folder_option
@build_option
@json_option("figure")
@markdown_option("table")
def broker(
    rows: str,
    peers: str,
    rounds: int,
    folder: Path,
    build: Path,
    kept: Path | None,
    page: Path | None,
    **scale: float,
) -> None:
    """Measure our brokers beside RocketMQ's."""
    keys = chosen_keys("--rows", rows, _KEYS, "all")
    wanted = [row for row in ROWS if row.key in keys]
    beside = chosen_keys("--peers", peers, _PEERS, "none")
    at_scale = Scale(**scale)  # type: ignore[arg-type]
    report, results = Report(folder), Results()
    toolchain = Toolchain(build, building=lambda what: tell(f"building {what}"))
    began = time.strftime("%Y-%m-%d %H:%M")
    kinds = [OURS]
    with report.run_folder() as base:
        load = None
        grpc: dict[str, Load] = {}
        try:
            if any(row.needs_grpc for row in wanted):
                grpc = grpc_loads(toolchain, base)
        except Unavailable as error:
            report.note(f"rows with RocketMQ 5's clients are left out: {error}")
            wanted = [row for row in wanted if not row.needs_grpc]
        try:
            if any(row.needs_load for row in wanted):
                load = load_program(toolchain, base)
            if "java" in beside and not all(row.by_proxy for row in wanted):
                kinds.append(rocketmq(toolchain))
            if "java5" in beside and any(row.by_proxy for row in wanted):
                kinds.append(rocketmq_by_proxy(toolchain))
            if NULL in beside and any(row.load_alone for row in wanted):
                kinds.append(null_broker(toolchain))
        except Unavailable as error:
            what = (
                "RocketMQ's brokers are" if load else "RocketMQ, and all that its client loads, is"
            )
            report.note(f"{what} left out: {error}")
            if load is None:
                wanted = [row for row in wanted if not row.needs_load]
        for number in range(rounds):
            # Take turns at going first: one kind may leave the disk busy for the next.
            for brokers in kinds if number % 2 == 0 else kinds[::-1]:
                measure(brokers, wanted, load, at_scale, base, results, report, grpc)
                report.keep(kept, {"figures": results.values(), "notes": report.notes})
    table = results.table(kinds)
    ran = f"{', '.join(each.version for each in kinds)}; medians of {rounds} rounds, in turn."
    if table.cells:
        show_tables([table], " ".join([ran, HOW, *report.notes]))
    report.write_page(page, [f"{ran} Begun {began}.", HOW], [table])
