"""`jepsen-like simulate`: many seeds, their coverage, and everything about the first failure."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import click

from dledger.command_line.options import FILE, NumberRange, flag, json_option, option
from dledger.command_line.progress import counted
from dledger.command_line.rows import say
from jepsen_like.chaos.service import ServiceUnusable
from jepsen_like.checkers.checker import counted as in_words
from jepsen_like.mutants.mutant import all_mutants, mutants_of
from jepsen_like.report.space_time import SpaceTime, space_time_page
from jepsen_like.simulation.campaign import (
    CampaignResult,
    Plan,
    run_campaign,
    trace_seed,
)
from jepsen_like.simulation.service.drawn_schedule import drawn_schedule
from jepsen_like.simulation.service.pasted_test import pasted_test
from jepsen_like.simulation.service.service_campaign import (
    EXPECTED_OF_SERVICES,
    loaded,
    recorded,
    shrunk,
)
from jepsen_like.simulation.service.shrinking import Shrunk
from jepsen_like.simulation.service.spoken_message import IDLE
from jepsen_like.simulation.tiers import TIERS, tier_of
from jepsen_like.users_modules import find_users_modules
from jepsen_like.workers import JOBS_MAX

# Lines of the trace printed with a failure: the last second or so, and one screen.
PRINTED_TRACE_LINES = 40
# With fewer seeds a kind of fault may be missing by chance, so missing kinds are not reported.
ENOUGH_SEEDS_FOR_COVERAGE = 300
# Without a terminal: a line after so many seeds.
SEEDS_A_PLAIN_LINE = 200
SECONDS_AN_HOUR = 3600.0
# A virtual day takes an hour or so.
FAULT_S_MAX = 86_400.0


def _list_bugs(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        for tier in TIERS:
            for mutant in mutants_of(tier):
                click.echo(f"  {mutant.name}: {mutant.what}")
        context.exit()


@click.command()
@option(
    "--tier",
    "What is simulated: bare members of a group, members that run the broker, or whole hosts.",
    default="members",
    type=click.Choice(list(TIERS)),
)
@option(
    "--service",
    "Simulate your own state machine: its class, or a jepsen_like.Service.",
    metavar="MODULE:NAME",
)
@option("--seeds", "How many.", default=300, type=click.IntRange(1))
@option("--seed", "The first one.", default=0, type=click.IntRange(0))
@option("--nodes", "Members, or hosts; else as each seed decides.", type=click.IntRange(1, 9))
@option("--seconds", "fault_s", "Virtual seconds with faults.", type=NumberRange(0.1, FAULT_S_MAX))
@option("--time-budget", "budget_s", "Begin no seed after so many seconds.", type=NumberRange(0.1))
@option(
    "--shrink-seconds",
    "shrink_s",
    "With --service: how long a failing run may be shortened.",
    default=30.0,
    type=NumberRange(0.0),
)
@option("--jobs", "Processes; one a core unless given.", type=click.IntRange(1, JOBS_MAX))
@option(
    "--trace",
    "Write the whole trace of the failing seed (or of the only one) to this file.",
    type=FILE,
)
@option(
    "--diagram",
    "With --service: draw the shortened run (or the only one) as a page, into this file.",
    type=FILE,
)
@json_option("Print one JSON object and nothing else.")
@option(
    "--seeded-bug",
    "Plant a known bug: the run must fail.",
    type=click.Choice(sorted(mutant.name for tier in TIERS for mutant in mutants_of(tier))),
    metavar="NAME",
)
@flag("--aimed", "With a known bug: the load and the faults under which it shows soon.")
@flag(
    "--list-seeded-bugs",
    "Say which bugs can be planted.",
    is_eager=True,
    expose_value=False,
    callback=_list_bugs,
)
def simulate(
    tier: str,
    service: str | None,
    seeds: int,
    seed: int,
    nodes: int | None,
    fault_s: float | None,
    budget_s: float | None,
    shrink_s: float,
    jobs: int | None,
    trace: Path | None,
    diagram: Path | None,
    as_json: bool,
    seeded_bug: str | None,
    aimed: bool,
) -> None:
    """Simulate groups under faults in virtual time, one for each seed.

    Each seed decides the size of the group, its load and its faults. Exit status 1 means that a
    promise was broken; the seed, the promise and the way to see it again are printed.
    """
    if seeded_bug is not None and all_mutants()[seeded_bug].tier != tier:
        raise click.UsageError(f"{seeded_bug} is a bug of another tier than {tier}: name it")
    if diagram is not None and service is None:
        raise click.UsageError("--diagram draws runs of --service")
    if service is not None:
        _check_service(service, tier, seeded_bug)
    for path in (trace, diagram):
        if path is not None:
            _check_writable(path)  # it is written once all seeds have run
    plan = Plan(seed, seeds, nodes, fault_s, seeded_bug, tier, aimed, service, budget_s)
    with redirect_stdout(sys.stderr):  # what a user's machine prints
        result = _run(plan, jobs or os.cpu_count() or 1, quiet=as_json)
        failed = result.broken
        if trace is not None:
            shown = failed.seed if failed is not None else seed
            with trace.open("w", encoding="utf-8") as sink:
                trace_seed(plan, shown, sink)
        short = _shrunk_failure(plan, result, shrink_s)
        if diagram is not None and not (failed is not None and failed.before_run):
            _write_diagram(plan, short, failed.seed if failed is not None else seed, diagram)
    if as_json:
        click.echo(json.dumps(_as_dict(plan, result, short)))
    else:
        _report(plan, result, short)
    if failed is not None:
        sys.exit(1)


def _check_writable(path: Path) -> None:
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error


def _check_service(name: str, tier: str, seeded_bug: str | None) -> None:
    if tier != Plan(0, 0).tier or seeded_bug is not None:
        raise click.UsageError("--service goes with neither --tier nor --seeded-bug")
    find_users_modules()
    try:
        loaded(name)
    except ServiceUnusable as error:
        raise click.UsageError(str(error)) from error


def _run(plan: Plan, jobs: int, *, quiet: bool) -> CampaignResult:
    if quiet:
        return run_campaign(plan, jobs)

    def plain(done: int) -> str | None:
        return None if done % SEEDS_A_PLAIN_LINE else f"{done} of {plan.seeds} seeds"

    with counted("seeds", plan.seeds, plain) as advance:
        return run_campaign(plan, jobs, lambda _: advance())


def _seeds_a_minute(result: CampaignResult) -> float:
    return result.seeds / max(result.real_s, 1e-9) * 60.0


def _speed(result: CampaignResult) -> str:
    """Return how fast the seeds went, in all processes together."""
    real_s = max(result.real_s, 1e-9)
    events = result.coverage.counts().get("events", 0)
    per_event = f", {events / real_s:,.0f} events a second" if events else ""
    return f"{result.virtual_s / real_s:.0f} times real time{per_event}"


def _report(plan: Plan, result: CampaignResult, short: Shrunk | None) -> None:
    hours = result.virtual_s / SECONDS_AN_HOUR
    say(
        f"{result.seeds} seeds in {result.real_s:.1f} s "
        f"({_seeds_a_minute(result):.0f} a minute), {hours:.2f} simulated hours, {_speed(result)}"
    )
    for name, count in result.coverage.counts().items():
        if plan.service is not None and not count:
            continue  # such faults are not simulated there
        say(f"  {count:>10}  {name}")
    missing = result.coverage.missing(_expected(plan))
    if plan.service is not None:
        _report_checks(plan)
    if missing and result.broken is None and result.seeds >= ENOUGH_SEEDS_FOR_COVERAGE:
        say(f"never reached: {', '.join(missing)}")
    broken = result.broken
    if broken is None:
        say("no promise was broken")
        return
    if plan.service is not None:
        _report_failure(plan, result, short)
        say(f"again: {rerun_command(plan, broken.seed)}")
        return
    say("")
    for line in trace_seed(plan, broken.seed).last(PRINTED_TRACE_LINES):
        say(line)
    say("")
    say(f"seed {broken.seed}, after {broken.at_s:.6f} s: {broken.promise}: {broken.how}")
    say(f"again: {rerun_command(plan, broken.seed)}")


def _expected(plan: Plan) -> Sequence[str]:
    return tier_of(plan.tier).expected if plan.service is None else EXPECTED_OF_SERVICES


def rerun_command(plan: Plan, seed: int) -> str:
    """Return the command that runs one seed of a plan again."""
    words = ["jepsen-like", "simulate", "--seed", str(seed), "--seeds", "1"]
    if plan.service is not None:
        words += ["--service", plan.service]
    if plan.tier != Plan(0, 0).tier:
        words += ["--tier", plan.tier]
    if plan.nodes is not None:
        words += ["--nodes", str(plan.nodes)]
    if plan.fault_s is not None:
        words += ["--seconds", str(plan.fault_s)]
    if plan.seeded_bug is not None:
        words += ["--seeded-bug", plan.seeded_bug, *["--aimed"] * plan.aimed]
    if plan.service is not None:
        return shlex.join([*words, "--diagram", f"seed-{seed}.html"])
    return shlex.join([*words, "--trace", f"seed-{seed}.txt"])


def _as_dict(plan: Plan, result: CampaignResult, short: Shrunk | None) -> dict[str, object]:
    broken = result.broken
    expected = _expected(plan)
    return {
        "first_seed": plan.first_seed,
        "seeds": result.seeds,
        "seeds_per_minute": round(_seeds_a_minute(result), 1),
        "events_per_second": round(
            result.coverage.counts().get("events", 0) / max(result.real_s, 1e-9)
        ),
        "simulated_hours": result.virtual_s / SECONDS_AN_HOUR,
        "coverage": result.coverage.counts(),
        "never_reached": result.coverage.missing(expected),
        "failure": None
        if broken is None
        else {
            **broken._asdict(),
            "again": rerun_command(plan, broken.seed),
            "shrunk": _shrunk_as_dict(plan, short),
        },
    }


# Steps that are listed above a picture.
STEPS_SHOWN_MAX = 12


def _shrunk_failure(plan: Plan, result: CampaignResult, budget_s: float) -> Shrunk | None:
    """Return the short schedule of the seed that failed.

    None if none failed, if it does not fail again, or if it has no schedule because the user's code
    that draws clients' calls raised.
    """
    if plan.service is None or result.broken is None or result.broken.before_run:
        return None
    return shrunk(plan.service, result.broken.seed, plan.nodes, plan.fault_s, budget_s)


def _report_checks(plan: Plan) -> None:
    """Say which check was left out, and why."""
    assert plan.service is not None
    there = loaded(plan.service)
    if there.elsewhere is None:
        say(f"not checked in another process: {there.why_not}")


def _report_failure(plan: Plan, result: CampaignResult, short: Shrunk | None) -> None:
    broken = result.broken
    assert broken is not None
    assert plan.service is not None
    say("")
    say(f"seed {broken.seed}, after {broken.at_s:.3f} s: {broken.promise}: {broken.how}")
    if broken.before_run:
        say("clients' calls are drawn before a run: there is no run to shorten")
        return
    if short is None:
        say("the seed did not fail again: the state machine depends on more than its log")
        return
    schedule = short.schedule
    operations = len(schedule.steps) - schedule.faults
    say("")
    say(
        f"shrunk in {short.runs} runs{', out of time' if short.gave_up else ''}: "
        f"{in_words(operations, 'operation')}, {in_words(schedule.faults, 'fault')}, "
        f"{in_words(schedule.nodes, 'member')}, {schedule.length_s:.3f} virtual seconds"
    )
    for step in schedule.steps:
        say(f"  {step}")
    say(f"  {short.failure.at_s:.3f} s: {short.failure.promise}: {short.failure.how}")
    say("")
    say("as a test:")
    say("")
    say(pasted_test(plan.service, schedule, short.failure))


def _write_diagram(plan: Plan, short: Shrunk | None, seed: int, path: Path) -> None:
    """Draw the shortened run, or that of a seed, as a page."""
    assert plan.service is not None
    if short is not None:
        schedule = short.schedule
    else:
        service = loaded(plan.service).service
        schedule = drawn_schedule(service, seed, plan.nodes, plan.fault_s)
    world = recorded(plan.service, schedule)
    journal, failure = world.journal, world.failure
    assert journal is not None
    left_out = len(schedule.steps) - STEPS_SHOWN_MAX
    page = space_time_page(
        SpaceTime(
            title=f"{plan.service}, seed {schedule.seed}",
            broken=f"{failure.promise}: {failure.how}" if failure is not None else "",
            members=[member.name for member in world.members],
            events=list(journal.events),
            idle=IDLE,
            facts=[
                f"{schedule.nodes} members, {schedule.length_s:.3f} virtual seconds with faults",
                *(str(step) for step in schedule.steps[:STEPS_SHOWN_MAX]),
                *([f"and {left_out} more steps"] if left_out > 0 else []),
            ],
            test=pasted_test(plan.service, schedule, failure) if failure is not None else "",
        )
    )
    path.write_text(page, encoding="utf-8")


def _shrunk_as_dict(plan: Plan, short: Shrunk | None) -> dict[str, object] | None:
    if short is None or plan.service is None:
        return None
    return {
        "steps": [str(step) for step in short.schedule.steps],
        "nodes": short.schedule.nodes,
        "seconds": short.schedule.length_s,
        "promise": short.failure.promise,
        "how": short.failure.how,
        "runs": short.runs,
        "test": pasted_test(plan.service, short.schedule, short.failure),
    }
