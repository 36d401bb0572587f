"""The `jepsen-like` command."""

from __future__ import annotations

from importlib import import_module

import click

from dledger.command_line.ending import Commands
from jepsen_like.workers import WorkerEnded

# Each command is loaded when it is typed: all together take more than a second.
_MODULES = {
    name: f"jepsen_like.{name}_command" for name in ("check", "mutants", "run", "simulate", "suite")
}


class _LoadedWhenTyped(Commands):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_MODULES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(_MODULES[cmd_name]), cmd_name)
        return command


# As of a run whose harness failed: nothing is known.
@click.group(
    cls=_LoadedWhenTyped,
    program="jepsen-like",
    expected=(WorkerEnded,),
    is_unknown=lambda error: isinstance(error, WorkerEnded),
)
def main() -> None:
    """Break a dledger group on purpose, and check what it promised.

    \b
      jepsen-like list                                 what can be called, and what can break
      jepsen-like simulate --seeds 20                  in virtual time: seconds
      jepsen-like run --workload register --time 20    real processes
      jepsen-like run --service my_module:Machine      your own state machine
      jepsen-like check history.jsonl                  a history that was recorded

    `run` leaves a folder with the history and report.html. Each command has its own --help.
    """  # noqa: D301 - click's mark, a backspace


@main.command("list")
def list_() -> None:
    """Explain what `jepsen-like run` and `jepsen-like suite` can do, a line each."""
    from jepsen_like.chaos.dirty import DIRTY_BROKERS, DIRTY_SERVICES
    from jepsen_like.chaos.nemeses.catalogue import NEMESES
    from jepsen_like.chaos.services import find_service
    from jepsen_like.chaos.stages.brokers import EXPLANATIONS
    from jepsen_like.chaos.suites.catalogue import SUITES
    from jepsen_like.chaos.workloads.catalogue import WORKLOADS

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


if __name__ == "__main__":
    main()
