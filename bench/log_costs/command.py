"""`python -m bench log-costs`: the table of the costs of commands in the broker's log."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from bench.costs.loop_holds import without_collections
from bench.log_costs.dearest import dearest
from bench.log_costs.full_log import FullLog, Sizes
from dledger.command_line.options import option

_TIMES = 8


@click.command("log-costs")
@option("--only", "Only entries with this in their name.", default="", show_default=False)
def log_costs(only: str) -> None:
    """Measure how long one entry of each kind holds the event loop of a member.

    The state is filled to the limits of a broker, which takes a minute. Counted is the time that
    the thread had of a processor: the longest and the median of eight entries.
    """
    with tempfile.TemporaryDirectory() as folder:
        full = FullLog(Path(folder), Sizes())
        full.fill()
        try:
            with without_collections():
                _measure(full, only)
        finally:
            full.machine.close()


def _measure(full: FullLog, only: str) -> None:
    def snapshot() -> object:
        return full.machine.snapshot()

    # Deletions come last, because the others need the deleted rows.
    cases = sorted(dearest(), key=lambda case: case[0].startswith("Delete"))
    if only in "a snapshot begins":
        _print("a snapshot begins", [_ms(snapshot) for _ in range(_TIMES)])
    for name, make in cases:
        if only in name:
            took_ms: list[float] = []
            for number in range(_TIMES):
                entry = make(full, number)
                took_ms.append(_ms(lambda entry=entry: full.machine.apply([entry])))  # type: ignore[misc]
            _print(name, took_ms)


def _ms(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return 1000 * (time.thread_time() - began)


def _print(name: str, took_ms: list[float]) -> None:
    click.echo(f"{name:60} {max(took_ms):8.2f} {sorted(took_ms)[len(took_ms) // 2]:8.2f} ms")
