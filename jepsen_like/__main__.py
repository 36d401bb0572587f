"""The `jepsen-like` command."""

from __future__ import annotations

import click

from dledger.command_line.ending import Commands
from jepsen_like.chaos.dirty import DIRTY_BROKERS, DIRTY_SERVICES
from jepsen_like.chaos.nemeses.catalogue import NEMESES
from jepsen_like.chaos.services import find_service
from jepsen_like.chaos.stages.brokers import EXPLANATIONS
from jepsen_like.chaos.suites.catalogue import SUITES
from jepsen_like.chaos.workloads.catalogue import WORKLOADS
from jepsen_like.check_command import check
from jepsen_like.mutants_command import mutants
from jepsen_like.run_command import run
from jepsen_like.simulate_command import simulate
from jepsen_like.suite_command import suite


@click.group(cls=Commands, program="jepsen-like")
def main() -> None:
    """Break a dledger group on purpose, and check what it promised."""


@main.command("list")
def list_() -> None:
    """Explain what `jepsen-like run` and `jepsen-like suite` can do, a line each."""
    sections = {
        "Workloads (--workload)": {
            **{name: find_service(name).explanation for name in WORKLOADS},
            **EXPLANATIONS,
        },
        "Nemeses (--nemesis)": {name: one.explanation for name, one in NEMESES.items()},
        "Suites (jepsen-like suite NAME)": {name: one.explanation for name, one in SUITES.items()},
        "Seeded bugs of services (--dirty)": {
            name: mutant.what for name, mutant in DIRTY_SERVICES.items()
        },
        "Seeded bugs of brokers (--dirty)": {
            name: mutant.what for name, mutant in DIRTY_BROKERS.items()
        },
    }
    width = max(len(name) for section in sections.values() for name in section)
    for title, section in sections.items():
        click.echo(f"{title}:")
        for name, text in section.items():
            click.echo(f"  {name:<{width}}  {text}")


for _command in (simulate, check, run, suite, mutants):
    main.add_command(_command)

if __name__ == "__main__":
    main()
