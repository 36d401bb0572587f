"""The `dledger-mq` command."""

import logging
import os
import sys

import click

from dledger.command_line.ending import Commands
from dledger.shown_output import escaped
from dledger_mq.commands.certificates_command import certificates
from dledger_mq.commands.command_line import COMMAND_ERRORS, may_be_stored
from dledger_mq.commands.consume_command import consume, find, trace
from dledger_mq.commands.group_commands import group_commands
from dledger_mq.commands.redrive_command import redrive
from dledger_mq.commands.send_command import send
from dledger_mq.commands.status_command import settings, stats, status
from dledger_mq.commands.topic_commands import topic_commands
from dledger_mq.commands.up_command import up
from dledger_mq.commands.user_commands import access, user_commands

# The servers read their own options.
_PASS_ON = {"ignore_unknown_options": True, "help_option_names": []}


class _EscapedLines(logging.Formatter):
    """A line of the log may have words of a server: they begin no line, and move no cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own
        return escaped(super().formatMessage(record))


@click.group(
    cls=Commands,
    program="dledger-mq",
    expected=COMMAND_ERRORS,
    is_unknown=may_be_stored,
)
@click.version_option(package_name="dledger")
def main() -> None:
    """Run brokers that speak RocketMQ's protocol; send and consume messages.

    \b
    Try it, with a whole cluster on this machine:
      dledger-mq up --nodes 3 --dir /tmp/mq            a name server and three brokers
      dledger-mq send Hello "first message"            acknowledged by a quorum
      dledger-mq consume Hello --group readers --from-first
      dledger-mq status                                the nodes, and alarms

    \b
    Look at it, and change it:
      dledger-mq topic create Orders --queues 16
      dledger-mq group progress readers                how far it is in each queue
      dledger-mq settings fileReservedTime=48          while brokers run

    Commands ask the name server at 127.0.0.1:9876; --nameserver, behind the command, names
    another. Each command has its own --help.

    Exit codes: 0 done; 1 not done; 2 a wrong call, or `consume --timeout` with too few messages;
    3 it is not known whether it was done; 130 Ctrl-C.
    """  # noqa: D301 - click's mark, a backspace
    said = logging.StreamHandler()
    said.setFormatter(_EscapedLines("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[said])


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


@main.command("proxy", context_settings=_PASS_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def proxy(arguments: tuple[str, ...]) -> None:
    """Run one proxy for clients of RocketMQ 5 (see its --help)."""
    os.execv(sys.executable, [sys.executable, "-m", "proxy", *arguments])


for _command in (
    *(up, topic_commands, send, consume, find, group_commands),
    *(settings, trace, redrive, stats, status, certificates, access, user_commands),
):
    main.add_command(_command)

if __name__ == "__main__":
    main()
