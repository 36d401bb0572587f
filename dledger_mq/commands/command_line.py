"""What the commands of `dledger-mq` have in common."""

import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import click
import trio
from rich.console import Console

from dledger.shown_output import shown_on
from dledger.system_refusals import line_about
from dledger_mq.errors import MessagingError, OutcomeUnknown, SomeFailed
from remoting.wire.errors import RemotingError

DEFAULT_NAMESERVER: Final = "127.0.0.1:9876"

# docs/exit-codes.md has them; those of the `dledger` command are the same.
FAILED: Final = 1
OUTCOME_UNKNOWN: Final = 3
INTERRUPTED: Final = 130

# Progress and problems go to standard error, so that standard output can be piped on.
errors: Final = Console(stderr=True, highlight=False)
output: Final = Console(highlight=False)

nameserver_option = click.option(
    "--nameserver",
    "nameservers",
    default=DEFAULT_NAMESERVER,
    envvar="NAMESRV_ADDR",
    show_default=True,
    metavar="HOST:PORT[;...]",
    callback=lambda _context, _parameter, text: tuple(filter(None, text.split(";"))),
    help="Name servers, separated by semicolons.",
)

Result = TypeVar("Result")


def say(line: str) -> bool:
    """Print a line; False if the reader of the output has closed it, as `head` does.

    A terminal is sent no control characters of users.

    What is printed after that goes nowhere, so that the interpreter does not fail at its end.
    """
    try:
        click.echo(shown_on(sys.stdout, line))
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return False
    return True


def run(task: Callable[[], Awaitable[Result]]) -> Result:
    """Run a command's task; an expected error ends the program with one line.

    See docs/exit-codes.md.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        return trio.run(task)
    except (MessagingError, RemotingError) as error:
        problem: Exception = error
    except ExceptionGroup as group:
        expected = group.subgroup((MessagingError, RemotingError))
        if expected is None or group.split((MessagingError, RemotingError))[1] is not None:
            _end_if_refused(group)
            raise
        problem = _first(expected)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        _end_if_refused(error)
        raise
    click.echo(f"dledger-mq: {problem}", err=True)
    sys.exit(OUTCOME_UNKNOWN if _may_be_stored(problem) else FAILED)


def _end_if_refused(error: Exception) -> None:
    """End the program with one line if the system refused what it needs, such as memory."""
    if (line := line_about(error, ())) is not None:
        click.echo(f"dledger-mq: {line}", err=True)
        sys.exit(FAILED)


def _may_be_stored(problem: Exception) -> bool:
    """Whether a message was sent and it is not known what became of it."""
    if isinstance(problem, SomeFailed):
        return any(isinstance(outcome, OutcomeUnknown) for outcome in problem.outcomes)
    return isinstance(problem, OutcomeUnknown)


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """The first error of a group of groups."""
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
