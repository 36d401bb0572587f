"""Tells how the seeds of a user's service went, and shrinks the one that failed."""

from __future__ import annotations

from pathlib import Path

import click

from jepsen_like.report.space_time import SpaceTime, space_time_page
from jepsen_like.simulation.campaign import CampaignResult, Plan
from jepsen_like.simulation.service.drawn_schedule import drawn_schedule
from jepsen_like.simulation.service.pasted_test import pasted_test
from jepsen_like.simulation.service.service_campaign import loaded, recorded, shrunk
from jepsen_like.simulation.service.shrinking import Shrunk
from jepsen_like.simulation.service.spoken_message import IDLE

# Steps that are listed above a picture.
STEPS_SHOWN_MAX = 12


def shrunk_failure(plan: Plan, result: CampaignResult, budget_s: float) -> Shrunk | None:
    """The short schedule of the seed that failed; None if none did, or it does not fail again.

    None as well if the seed has no schedule, since the code that says what clients do raised.
    """
    if plan.service is None or result.broken is None or result.broken.before_run:
        return None
    return shrunk(plan.service, result.broken.seed, plan.nodes, plan.fault_seconds, budget_s)


def report_checks(plan: Plan) -> None:
    """Say which check was left out, and why."""
    assert plan.service is not None
    there = loaded(plan.service)
    if there.elsewhere is None:
        click.echo(f"not checked in another process: {there.why_not}")


def report_failure(plan: Plan, result: CampaignResult, short: Shrunk | None) -> None:
    """Print what broke, the short schedule, and the test."""
    broken = result.broken
    assert broken is not None
    assert plan.service is not None
    click.echo("")
    click.echo(f"seed {broken.seed}, after {broken.at_s:.3f} s: {broken.promise}: {broken.how}")
    if broken.before_run:
        click.echo("clients' calls are drawn before a run: there is no run to shorten")
        return
    if short is None:
        click.echo("the seed did not fail again: the state machine depends on more than its log")
        return
    schedule = short.schedule
    operations = len(schedule.steps) - schedule.faults
    click.echo("")
    click.echo(
        f"shrunk in {short.runs} runs{', out of time' if short.gave_up else ''}: "
        f"{_counted(operations, 'operation')}, {_counted(schedule.faults, 'fault')}, "
        f"{_counted(schedule.nodes, 'member')}, {schedule.seconds:.3f} virtual seconds"
    )
    for step in schedule.steps:
        click.echo(f"  {step}")
    click.echo(f"  {short.failure.at_s:.3f} s: {short.failure.promise}: {short.failure.how}")
    click.echo("")
    click.echo("as a test:")
    click.echo("")
    click.echo(pasted_test(plan.service, schedule, short.failure))


def write_diagram(plan: Plan, short: Shrunk | None, seed: int, path: Path) -> None:
    """Draw the shortened run, or that of a seed, as a page."""
    assert plan.service is not None
    if short is not None:
        schedule = short.schedule
    else:
        service = loaded(plan.service).service
        schedule = drawn_schedule(service, seed, plan.nodes, plan.fault_seconds)
    world = recorded(plan.service, schedule)
    journal, failure = world.journal, world.failure
    assert journal is not None
    page = space_time_page(
        SpaceTime(
            title=f"{plan.service}, seed {schedule.seed}",
            broken=f"{failure.promise}: {failure.how}" if failure is not None else "",
            members=[member.name for member in world.members],
            events=list(journal.events),
            idle=IDLE,
            facts=[
                f"{schedule.nodes} members, {schedule.seconds:.3f} virtual seconds with faults",
                *(str(step) for step in schedule.steps[:STEPS_SHOWN_MAX]),
                *_more(len(schedule.steps) - STEPS_SHOWN_MAX),
            ],
            test=pasted_test(plan.service, schedule, failure) if failure is not None else "",
        )
    )
    path.write_text(page, encoding="utf-8")


def _more(number: int) -> list[str]:
    return [f"and {number} more steps"] if number > 0 else []


def as_dict(plan: Plan, short: Shrunk | None) -> dict[str, object] | None:
    """The shrunk failure for a program."""
    if short is None or plan.service is None:
        return None
    return {
        "steps": [str(step) for step in short.schedule.steps],
        "nodes": short.schedule.nodes,
        "seconds": short.schedule.seconds,
        "promise": short.failure.promise,
        "how": short.failure.how,
        "runs": short.runs,
        "test": pasted_test(plan.service, short.schedule, short.failure),
    }


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
