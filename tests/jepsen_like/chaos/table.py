"""`make chaos`: every workload and nemesis in twenty minutes, and a table of what came of it.

Each row is one `jepsen-like run`. The seed is drawn anew each time, unless it is given:

    python tests/jepsen_like/chaos/table.py --seed 7 --out build/chaos
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import click

SECONDS = 45


class Row(NamedTuple):
    """One run."""

    workload: str
    nemeses: str
    nodes: int = 3
    more: tuple[str, ...] = ()


ROWS = (
    Row("register", "kill,freeze,partition", 5),
    Row("register", "partition,loss,delay,reorder,duplicate", 3, ("--lease",)),
    Row("cas", "rolling,transfer,stop,partition"),
    Row("append", "kill,partition", 5),
    Row("set", "tail,flip,wipe,partition", 5),
    Row("bank", "membership,partition"),
    Row("bank", "disk-full,kill"),
    Row("lock", "freeze,partition"),
    Row("session-counter", "kill,freeze,partition,loss"),
    Row("queue", "kill,partition,delay"),
    Row("messages", "kill,freeze,partition"),
    Row("messages", "wipe,flip,disk-full"),
    Row("ordered", "kill,freeze,partition"),
    Row("delay", "kill,freeze,partition"),
    Row("transaction", "kill,freeze,partition"),
    Row("pop", "kill,freeze,partition"),
)


@click.command()
@click.option("--seed", type=int, help="Of all runs; drawn unless given.")
@click.option("--seconds", default=SECONDS, show_default=True, help="With faults, of each run.")
@click.option("--out", default="build/chaos", show_default=True, type=click.Path(path_type=Path))
def main(seed: int | None, seconds: int, out: Path) -> None:
    """Make all runs; exit status 1 if one of them found something or failed."""
    if seed is None:
        seed = time.time_ns() % 1_000_000
    folder = out / str(seed)
    found: list[str] = []
    for number, row in enumerate(ROWS):
        place = folder / f"{number:02}-{row.workload}"
        words = ["--workload", row.workload, "--nemesis", row.nemeses, "--nodes", str(row.nodes)]
        words += ["--time", str(seconds), "--seed", str(seed + number), "--out", str(place)]
        ended = subprocess.run(
            [sys.executable, "-m", "jepsen_like", "run", *words, *row.more],
            capture_output=True,
            text=True,
            check=False,
        )
        (place.parent / f"{place.name}.txt").write_text(ended.stdout + ended.stderr)
        told = json.loads((place / "run.json").read_text())
        verdict, reason = told["verdict"] or "harness failed", told.get("reason", "")
        line = f"{row.workload:<16} {row.nemeses:<40} {row.nodes}  {verdict:<14} {reason}"
        click.echo(line[:160])
        if ended.returncode:
            found.append(f"{told['again']}   # {place}")
    for again in found:
        click.echo(f"again: {again}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
