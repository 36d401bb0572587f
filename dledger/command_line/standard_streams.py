"""Standard input and output of commands that write to a log, or read files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from dledger.command_line.ending import CommandFailed, ExitCode
from dledger.declared_error import DeclaredError
from dledger.shown_output import shown_on
from dledger.system_refusals import meaning


def input_descriptor() -> int:
    """Return the descriptor of standard input. Raises CommandFailed if it is closed.

    Then Python has no `sys.stdin`, and the number of the descriptor may belong to another file.
    """
    if sys.stdin is None:
        raise CommandFailed("standard input is closed: give one, /dev/null for an empty one")
    return sys.stdin.fileno()


class OutputFailed(DeclaredError):
    """Standard output cannot be written; the cause is the error of the system."""

    problem: str
    _template = "standard output cannot be written: {problem}"


@contextmanager
def telling() -> Iterator[None]:
    """Raise OutputFailed from an OSError: other files fail with the same errors."""
    try:
        yield
    except OSError as error:
        _discard_output()
        raise OutputFailed(meaning(error)) from error


@contextmanager
def telling_what_is_done(
    done: str,
    advice: str = "do not repeat it",
    expected: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Report a change that is done. If the output cannot be written, the exit code is 3.

    So it is after one of the `expected` errors of asking how things are after the change. Exit
    code 1 would say that it is not done, and a script would do it twice.
    """
    try:
        yield
    except OSError as error:
        _discard_output()
        problem = f"{done}, but standard output cannot be written ({meaning(error)}): {advice}"
        raise CommandFailed(problem, ExitCode.OUTCOME_UNKNOWN) from None
    except expected as error:
        problem = f"{done}, but not shown ({error}): {advice}"
        raise CommandFailed(problem, ExitCode.OUTCOME_UNKNOWN) from error


def say_done(done: str) -> None:
    """Print that a change is done, in one line."""
    with telling_what_is_done(done):
        click.echo(shown_on(sys.stdout, done))


def _discard_output() -> None:
    """Send the rest to /dev/null, so that the interpreter does not fail at its end."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
