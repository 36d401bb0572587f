"""How a command ends: its exit code, and Ctrl-C without a traceback. See docs/exit-codes.md."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import click

from dledger.errors import DLedgerError, OutcomeUnknown


class ExitCode(IntEnum):
    """The exit codes of the commands."""

    DONE = 0
    FAILED = 1  # it was not done, or a check found a problem
    WRONG_CALL = 2  # click's own: an unknown option or argument
    OUTCOME_UNKNOWN = 3  # it may be in the log, or not
    INTERRUPTED = 130  # as a shell reports Ctrl-C


class InterruptibleCommands(click.Group):
    """Commands that end silently at Ctrl-C, with the exit code that scripts expect."""

    def invoke(self, ctx: click.Context) -> object:
        """As click's own."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(ExitCode.INTERRUPTED)


def exit_code_of(errors: list[DLedgerError]) -> ExitCode:
    """Return the exit code of a command that these errors ended."""
    unknown = any(isinstance(error, OutcomeUnknown) for error in errors)
    return ExitCode.OUTCOME_UNKNOWN if unknown else ExitCode.FAILED


def single_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors inside nested groups, or the single error."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from single_errors(inner)
    else:
        yield error
