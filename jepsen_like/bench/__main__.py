"""`make bench`: dledger and PySyncObj, three real processes each, the same work, in turn."""

from __future__ import annotations

import json
import selectors
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from dledger.local_group import free_ports
from jepsen_like.bench.workload import Measured, Workload

SYSTEMS = {
    "dledger (fdatasync first)": "jepsen_like.bench.dledger_member",
    "PySyncObj (never syncs)": "jepsen_like.bench.pysyncobj_member",
}

WORKLOADS = (
    Workload("append, 1 000 in flight", in_flight=1000, batch=1),
    Workload("append_many of 64, 1 024 in flight", in_flight=1024, batch=64),
    Workload("append, one at a time", in_flight=1, batch=1),
)

# A member that prints nothing within this time beyond its workload has no leader.
_GRACE_S = 40.0


def measure(system: str, workload: Workload, folder: Path) -> Measured:
    """Run three members until the leader printed its result."""
    peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}
    members = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", SYSTEMS[system], node_id, json.dumps(peers)),
                *(str(folder / node_id), workload.to_json()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for node_id in peers
    ]
    try:
        return _first_result(members, workload)
    finally:
        for member in members:
            member.kill()
        for member in members:
            member.communicate()


def _first_result(members: list[subprocess.Popen[str]], workload: Workload) -> Measured:
    deadline_s = workload.warm_up_s + workload.seconds + _GRACE_S
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.stdout, selectors.EVENT_READ, member)  # type: ignore[arg-type]
        while events := selector.select(deadline_s):
            for key, _ in events:
                line = key.data.stdout.readline()
                if line:
                    return Measured(**json.loads(line))
                selector.unregister(key.fileobj)
    raise click.ClickException(f"no member of the group led within {deadline_s:g} s")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=5.0, show_default=True, help="Measured time of each run.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help="On the disk to measure; default: a new folder here.",
)
@click.option("--only", type=click.Choice(["dledger", "pysyncobj"]), help="One system alone.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a row.")
def main(seconds: float, folder: Path | None, only: str | None, as_json: bool) -> None:
    """Measure appends to a group of three real processes on this machine, beside PySyncObj.

    dledger acknowledges after fdatasync on a quorum; PySyncObj never syncs. Bodies of 256 bytes.
    """
    base = Path(tempfile.mkdtemp(prefix="bench-", dir=folder or Path.cwd()))
    rows: dict[str, dict[str, Measured]] = {}
    console = Console()
    try:
        for number, planned in enumerate(WORKLOADS):
            workload = replace(planned, seconds=seconds)
            for system in SYSTEMS:
                if only and not system.lower().startswith(only):
                    continue
                place = base / f"{number}-{len(rows.get(workload.name, {}))}"
                place.mkdir()
                with console.status(f"{system}: {workload.name}"):
                    result = measure(system, workload, place)
                shutil.rmtree(place)
                rows.setdefault(workload.name, {})[system] = result
                if as_json:
                    row = {"system": system, "workload": workload.name, **asdict(result)}
                    print(json.dumps(row), flush=True)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if not as_json:
        console.print(_table(rows))


def _table(rows: dict[str, dict[str, Measured]]) -> Table:
    table = Table(title="three processes, 256-byte bodies")
    table.add_column("work")
    table.add_column("system")
    for column in ("entries/s", "median ms", "p99 ms", "rate against PySyncObj"):
        table.add_column(column, justify="right")
    for name, results in rows.items():
        peer = next((r for s, r in results.items() if s.startswith("PySyncObj")), None)
        for system, result in results.items():
            ratio = f"{result.entries_per_s / peer.entries_per_s:.1f} x" if peer else ""
            table.add_row(
                name,
                system,
                f"{result.entries_per_s:,.0f}",
                f"{result.median_ms:.2f}",
                f"{result.p99_ms:.2f}",
                ratio,
            )
    return table


if __name__ == "__main__":
    main()
