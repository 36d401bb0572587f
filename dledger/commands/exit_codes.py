"""How a command ends: its exit code, and Ctrl-C without a traceback. See docs/exit-codes.md."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import click

from dledger.errors import DLedgerError, OutcomeUnknown


class ExitCode(IntEnum):
    """What the exit code of a command says."""

    DONE = 0
    FAILED = 1  # it was not done, or what was checked is wrong
    WRONG_CALL = 2  # click's own: an option or an argument that there is not
    OUTCOME_UNKNOWN = 3  # it may be in the log, or not
    INTERRUPTED = 130  # what a shell reports for Ctrl-C


class InterruptibleCommands(click.Group):
    """Commands that Ctrl-C ends without a word, and with the code that scripts look for."""

    def invoke(self, ctx: click.Context) -> object:
        """As click's own."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(ExitCode.INTERRUPTED)


def exit_code_of(errors: list[DLedgerError]) -> ExitCode:
    """The code for a command that these errors ended."""
    unknown = any(isinstance(error, OutcomeUnknown) for error in errors)
    return ExitCode.OUTCOME_UNKNOWN if unknown else ExitCode.FAILED


def single_errors(error: BaseException) -> Iterator[BaseException]:
    """The errors inside nested groups, or the one."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from single_errors(inner)
    else:
        yield error
