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
    "dledger": "jepsen_like.bench.dledger_member",
    "PySyncObj": "jepsen_like.bench.pysyncobj_member",
}

SYNCS = "dledger acknowledges after fdatasync on two of three; PySyncObj never syncs"

WORKLOADS = (
    Workload("append, 1000 in flight", in_flight=1000, batch=1),
    Workload("64 a call, 1024 in flight", in_flight=1024, batch=64),
    Workload("64 a call, 4096 in flight", in_flight=4096, batch=64),
    Workload("append, one at a time", in_flight=1, batch=1),
)

# A member that prints nothing within this time beyond its workload has no leader.
_GRACE_S = 40.0


def measure(system: str, workload: Workload, folder: Path) -> Measured:
    """Run three members until the leader printed its result. Their complaints go to a file."""
    peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}
    with complaints_file(folder).open("wb") as complaints:
        members = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", SYSTEMS[system], node_id, json.dumps(peers)),
                    *(str(folder / node_id), workload.to_json()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
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


def complaints_file(folder: Path) -> Path:
    """What the members of a run wrote to standard error."""
    return folder / "stderr"


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
    complaints: dict[str, list[str]] = {}
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
                lines = complaints_file(place).read_text(errors="replace").splitlines()
                complaints.setdefault(system, []).extend(lines)
                shutil.rmtree(place)
                rows.setdefault(workload.name, {})[system] = result
                if as_json:
                    row = {"system": system, "workload": workload.name, **asdict(result)}
                    print(json.dumps(row), flush=True)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if not as_json:
        console.print(_table(rows))
        console.print(SYNCS, soft_wrap=True)
    for system, lines in complaints.items():
        if lines:
            said = f"{system} complained {len(lines)} times; the last: {lines[-1]}"
            Console(stderr=True).print(said, soft_wrap=True, markup=False)


def _table(rows: dict[str, dict[str, Measured]]) -> Table:
    table = Table(title="three processes, bodies of 256 bytes")
    table.add_column("work", no_wrap=True)
    table.add_column("system", no_wrap=True)
    for column in ("entries/s", "p50 ms", "p99 ms", "ratio"):
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
