"""The `jepsen-like` command."""

from __future__ import annotations

import click

from dledger.commands.exit_codes import InterruptibleCommands
from dledger.shown_output import escape_what_cannot_be_shown
from jepsen_like.check_command import check
from jepsen_like.list_command import list_
from jepsen_like.mutants_command import mutants
from jepsen_like.run_command import run
from jepsen_like.simulate_command import simulate
from jepsen_like.suite_command import suite


@click.group(cls=InterruptibleCommands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Break a dledger group on purpose, and check what it promised."""
    escape_what_cannot_be_shown()


main.add_command(simulate)
main.add_command(check)
main.add_command(run)
main.add_command(suite)
main.add_command(list_)
main.add_command(mutants)

if __name__ == "__main__":
    main()
