"""`jepsen-like mutants`: plant known mistakes, one at a time, and see whether each is found."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial

import click

from dledger.command_line.options import NumberRange, flag, json_option, option
from dledger.command_line.progress import counted
from dledger.command_line.rows import print_table
from jepsen_like.mutants.mutant import SERVICES, Mutant, all_mutants
from jepsen_like.simulation.tiers import TIERS
from jepsen_like.trials.chaos_trial import TrialFailed, chaos_trial
from jepsen_like.trials.simulated_trial import simulated_trial
from jepsen_like.trials.trial import Fate, Trial
from jepsen_like.workers import JOBS_MAX, each_in_workers

# Where mistakes are: the tiers of the simulation, and services that rest on the library.
AREAS = (*TIERS, SERVICES)

BUDGET_S_DEFAULT = 60.0
# Without a terminal: a line after so many mistakes.
MUTANTS_A_PLAIN_LINE = 10
EXIT_SURVIVED, EXIT_UNDECIDED, EXIT_FAILED = 1, 2, 3

EPILOG = """\b
Exit status:
  0  every mistake was caught
  1  one was not, or its seed breaks a promise without it as well
  2  Ctrl-C left some untried
  3  a run could not be made

\b
Examples:
  jepsen-like mutants
  jepsen-like mutants --area brokers --jobs 1
  jepsen-like mutants --only vote-not-durable --only stale-read
  jepsen-like mutants --show vote-not-durable
"""


def known_mutants() -> list[Mutant]:
    """Return the mistakes that the harness must find, by area; tests alone look for the others."""
    return sorted(
        [mutant for mutant in all_mutants().values() if mutant.area is not None],
        key=lambda mutant: AREAS.index(mutant.area),
    )


def _list_them(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        for mutant in known_mutants():
            click.echo(f"{mutant.area:<9} {mutant.name}: {mutant.what}")
        context.exit()


def _show_one(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if name is not None:
        (mutant,) = _chosen((name,), ())
        click.echo(f"{mutant.name} ({mutant.area}): {mutant.what}\n\n{mutant.diff()}", nl=False)
        context.exit()


@click.command(epilog=EPILOG)
@option("--only", "Try this mistake; may be repeated.", multiple=True, metavar="NAME")
@option(
    "--area",
    "areas",
    "Try the mistakes of an area; may be repeated.",
    multiple=True,
    type=click.Choice(AREAS),
)
@option("--jobs", "Processes; one a core unless given.", type=click.IntRange(1, JOBS_MAX))
@option(
    "--time-budget",
    "budget_s",
    "Seconds after which no run begins for one mistake.",
    type=NumberRange(1.0),
    default=BUDGET_S_DEFAULT,
)
@json_option("Print one JSON object and nothing else.")
@flag(
    "--list",
    "Say which mistakes there are.",
    is_eager=True,
    expose_value=False,
    callback=_list_them,
)
@option(
    "--show",
    "Show the source of a mistake beside that of the product, as a diff.",
    metavar="NAME",
    is_eager=True,
    expose_value=False,
    callback=_show_one,
)
def mutants(
    only: tuple[str, ...],
    areas: tuple[str, ...],
    jobs: int | None,
    budget_s: float,
    as_json: bool,
) -> None:
    """Plant known mistakes, one at a time, and see whether the harness finds each.

    Mistakes of the library, of hosts and of brokers are looked for by
    simulation; mistakes of services that rest on the library by chaos on
    real processes, for a minute each. A mistake is planted in a process of
    its own: other functions take the place of the product's. The seed that
    shows it is run once more without it, and must break nothing.
    """
    chosen = _chosen(only, areas)
    trials: list[Trial] = []
    interrupted = False
    try:
        for trial in _shown(_trials(chosen, jobs or os.cpu_count() or 1, budget_s), len(chosen)):
            trials.append(trial)
    except KeyboardInterrupt:
        interrupted = True
    except TrialFailed as error:
        click.echo(f"a run failed: {error}", err=True)
        _report(trials, len(chosen), as_json)
        sys.exit(EXIT_FAILED)
    _report(trials, len(chosen), as_json)
    if any(trial.fate is not Fate.CAUGHT for trial in trials):
        sys.exit(EXIT_SURVIVED)
    sys.exit(EXIT_UNDECIDED if interrupted else 0)


def _chosen(only: Sequence[str], areas: Sequence[str]) -> list[Mutant]:
    """Return the mistakes to try. Raises UsageError for an unknown name."""
    known = known_mutants()
    unknown = set(only) - {mutant.name for mutant in known}
    if unknown:
        raise click.UsageError(f"no mistake is called {sorted(unknown)[0]}: see --list")
    return [
        mutant
        for mutant in known
        if (not only or mutant.name in only) and (not areas or mutant.area in areas)
    ]


def _trials(chosen: Sequence[Mutant], jobs: int, budget_s: float) -> Iterator[Trial]:
    """Yield the trials of these mistakes. Raises TrialFailed, KeyboardInterrupt."""
    simulated = [mutant for mutant in chosen if mutant.area != SERVICES]
    if jobs > 1 and len(simulated) > 1:
        trial = partial(simulated_trial, budget_s=budget_s)
        yield from each_in_workers(trial, simulated, min(jobs, len(simulated)))
    else:
        for mutant in simulated:
            yield simulated_trial(mutant, budget_s)
    # Each takes all cores by itself.
    for mutant in chosen:
        if mutant.area == SERVICES:
            yield chaos_trial(mutant, budget_s)


def _shown(trials: Iterator[Trial], count: int) -> Iterator[Trial]:
    def plain(done: int) -> str | None:
        return None if done % MUTANTS_A_PLAIN_LINE else f"{done} of {count} mistakes tried"

    with counted("mistakes", count, plain) as advance:
        for trial in trials:
            advance(description=trial.mutant.name)
            yield trial


def _report(trials: Sequence[Trial], count: int, as_json: bool) -> None:
    caught = sum(trial.fate is Fate.CAUGHT for trial in trials)
    if as_json:
        rows = [
            {
                "name": trial.mutant.name,
                "what": trial.mutant.what,
                "area": trial.mutant.area,
                "fate": trial.fate.value,
                "oracle": trial.oracle,
                "seed": trial.seed,
                "runs": trial.runs,
                "seconds": round(trial.took_s, 1),
            }
            for trial in trials
        ]
        click.echo(json.dumps({"mutants": count, "caught": caught, "trials": rows}))
        return
    if sys.stdout.isatty():
        columns = ("mistake", "area", "fate", "oracle", "seed", "runs", "seconds")
        styles = [None if trial.fate is Fate.CAUGHT else "red" for trial in trials]
        print_table(columns, map(_texts, trials), styles=styles, no_wrap=False)
    else:
        for trial in trials:
            click.echo("  ".join(_texts(trial)))
    click.echo(f"mutants: caught {caught}/{count}")


def _texts(trial: Trial) -> tuple[str, ...]:
    return (
        trial.mutant.name,
        trial.mutant.area or "-",
        trial.fate.value,
        trial.oracle or "-",
        "-" if trial.seed is None else str(trial.seed),
        str(trial.runs),
        f"{trial.took_s:.1f}",
    )
