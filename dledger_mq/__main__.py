"""The `dledger-mq` command."""

import os
import sys

import click

from dledger.shown_output import escape_what_cannot_be_shown
from dledger_mq.commands.consume_command import consume
from dledger_mq.commands.find_command import find
from dledger_mq.commands.group_commands import group_commands
from dledger_mq.commands.mode_command import mode
from dledger_mq.commands.redrive_command import redrive
from dledger_mq.commands.send_command import send
from dledger_mq.commands.settings_command import settings
from dledger_mq.commands.stats_command import stats
from dledger_mq.commands.status_command import status
from dledger_mq.commands.topic_commands import topic_commands
from dledger_mq.commands.trace_command import trace
from dledger_mq.commands.up_command import up

# Options of the servers themselves are theirs to read.
_PASS_ON = {"ignore_unknown_options": True, "help_option_names": []}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dledger")
def main() -> None:
    """Run brokers that speak RocketMQ's protocol; send and consume messages."""
    escape_what_cannot_be_shown()


@main.command("nameserver", context_settings=_PASS_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def nameserver(arguments: tuple[str, ...]) -> None:
    """Run one name server (see its --help)."""
    os.execv(sys.executable, [sys.executable, "-m", "nameserver", *arguments])


@main.command("broker", context_settings=_PASS_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def broker(arguments: tuple[str, ...]) -> None:
    """Run one broker (see its --help)."""
    os.execv(sys.executable, [sys.executable, "-m", "broker", *arguments])


main.add_command(up)
main.add_command(topic_commands)
main.add_command(send)
main.add_command(consume)
main.add_command(find)
group_commands.add_command(mode)
main.add_command(group_commands)
main.add_command(settings)
main.add_command(trace)
main.add_command(redrive)
main.add_command(stats)
main.add_command(status)

if __name__ == "__main__":
    main()
