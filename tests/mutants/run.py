"""Plant every known mistake, one at a time, and see a test go red for it: `make mutants`.

Exits 0 if every mutant was noticed; 1 if one survived, or cannot be planted any more.
"""

from __future__ import annotations

import os
import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dledger.command_line.progress import counting_bar
from jepsen_like.mutants.mutant import Mutant, MutantUnusable, all_mutants
from tests.mutants.trial import Trial, Verdict, Workshop, workshops

PROJECT = Path(__file__).parents[2]
# Without a terminal: a line after so many mutants.
TRIALS_A_PLAIN_LINE = 20

T = TypeVar("T")


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Try this one; may be repeated.")
@click.option("--list", "list_them", is_flag=True, help="Say which mutants there are.")
@click.option("--jobs", type=click.IntRange(1), help="At once; one a core unless given.")
def main(only: tuple[str, ...], list_them: bool, jobs: int | None) -> None:
    """Plant every known mistake, one at a time, and see a test go red for it."""
    try:
        mutants = chosen(mutants_of_tests(), only)
    except MutantUnusable as error:
        raise click.ClickException(str(error)) from error
    if list_them:
        for mutant in mutants:
            click.echo(f"{mutant.name} ({_traps(mutant)}): {mutant.what}")
        return
    with workshops(PROJECT, min(jobs or os.cpu_count() or 1, len(mutants))) as copies:
        trials, red = run(mutants, copies)
    report(trials, red)
    sys.exit(1 if red or any(trial.verdict is not Verdict.NOTICED for trial in trials) else 0)


def mutants_of_tests() -> list[Mutant]:
    """Those that tests must notice; the simulation and runs of processes look for the others."""
    return [mutant for mutant in all_mutants().values() if mutant.red_tests]


def chosen(mutants: list[Mutant], only: Sequence[str]) -> list[Mutant]:
    """The mutants of these names; all without one. Raises MutantUnusable for an unknown name."""
    unknown = set(only) - {mutant.name for mutant in mutants}
    if unknown:
        raise MutantUnusable(f"no mutant is called {sorted(unknown)[0]}: see --list")
    return [mutant for mutant in mutants if not only or mutant.name in only]


def run(mutants: Sequence[Mutant], copies: Sequence[Workshop]) -> tuple[list[Trial], list[str]]:
    """All trials, in the order of the list, and the tests that are red without any mutant."""
    free: queue.SimpleQueue[Workshop] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def in_a_workshop(job: Callable[[Workshop], T]) -> T:
        workshop = free.get()
        try:
            return job(workshop)
        finally:
            free.put(workshop)

    def try_out(mutant: Mutant) -> Trial:
        return in_a_workshop(lambda workshop: workshop.try_out(mutant))

    tests = [test for mutant in mutants for test in mutant.red_tests]
    with ThreadPoolExecutor(len(copies)) as pool:
        whole = pool.submit(in_a_workshop, lambda workshop: workshop.red_without_a_mutant(tests))
        tried = [pool.submit(try_out, mutant) for mutant in mutants]
        with progress(len(tried)) as tell:
            for ended in as_completed(tried):
                tell(ended.result())
        return [one.result() for one in tried], whole.result()


@contextmanager
def progress(total: int) -> Iterator[Callable[[Trial], None]]:
    """Shows how many are done: a bar on a terminal, else a line now and then."""
    console = Console(stderr=True)
    if not console.is_terminal:
        done = 0

        def count(_: Trial) -> None:
            nonlocal done
            done += 1
            if done % TRIALS_A_PLAIN_LINE == 0:
                click.echo(f"{done} of {total} mutants", err=True)

        yield count
        return
    with counting_bar(console) as bar:
        task = bar.add_task("mutants", total=total)
        yield lambda _: bar.advance(task)


def report(trials: Sequence[Trial], red: Sequence[str]) -> None:
    """Print what became of each mutant, and the count."""
    console = Console()
    if console.is_terminal:
        table = Table("mutant", "traps", "verdict", "why", box=None)
        for mutant, verdict, reason in trials:
            colour = "green" if verdict is Verdict.NOTICED else "red"
            table.add_row(
                mutant.name, _traps(mutant), f"[{colour}]{verdict.value}[/]", escape(reason)
            )
        console.print(table)
    else:
        for mutant, verdict, reason in trials:
            click.echo(f"{verdict.value:10}{mutant.name:44}{_traps(mutant):14}{reason}")
    for line in red:
        click.echo(f"red without any mutant: {line}")
    noticed = sum(trial.verdict is Verdict.NOTICED for trial in trials)
    click.echo(f"{noticed} of {len(trials)} mutants noticed")


def _traps(mutant: Mutant) -> str:
    return ", ".join(map(str, mutant.traps)) or "-"


if __name__ == "__main__":
    main()
