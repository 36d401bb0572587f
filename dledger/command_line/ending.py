"""How a command ends: an exit code, a line about an expected error, no traceback at Ctrl-C.

See docs/exit-codes.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import click

from dledger.shown_output import escape_what_cannot_be_shown
from dledger.system_refusals import line_about, single


class ExitCode(IntEnum):
    """The exit codes of the commands."""

    DONE = 0
    FAILED = 1  # it was not done, or a check found a problem
    WRONG_CALL = 2  # click's own: an unknown option or argument
    OUTCOME_UNKNOWN = 3  # it may be in the log, or not
    INTERRUPTED = 130  # as a shell reports Ctrl-C


class CommandFailed(Exception):
    """A command did its work, and ends with a line and an exit code all the same."""

    def __init__(self, problem: str, code: int = ExitCode.FAILED) -> None:
        super().__init__(problem)
        self.code = code


class Commands(click.Group):
    """Commands that end with a line about an error that is expected, and silently at Ctrl-C.

    Args:
        program: what the line begins with.
        expected: the errors, besides what the system refuses.
        is_unknown: whether such an error leaves it open what was done.
    """

    def __init__(
        self,
        *arguments: Any,
        program: str,
        expected: tuple[type[Exception], ...] = (),
        is_unknown: Callable[[BaseException], bool] = lambda _error: False,
        **attributes: Any,
    ) -> None:
        attributes.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*arguments, **attributes)
        self._program = program
        self._expected: tuple[type[Exception], ...] = (CommandFailed, *expected)
        self._is_unknown = is_unknown

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """As click's own, which deals with the errors of click."""
        escape_what_cannot_be_shown()
        try:
            return super().main(*arguments, **settings)
        except Exception as error:
            if (lines := lines_about(error, self._expected)) is None:
                raise
            for line in lines:
                print(f"{self._program}: {line}", file=sys.stderr)
            sys.exit(self._code(list(single(error))))

    def invoke(self, ctx: click.Context) -> Any:
        """As click's own."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(ExitCode.INTERRUPTED)

    def _code(self, errors: Sequence[BaseException]) -> int:
        if any(map(self._is_unknown, errors)):
            return ExitCode.OUTCOME_UNKNOWN
        return next((e.code for e in errors if isinstance(e, CommandFailed)), ExitCode.FAILED)


def lines_about(error: Exception, expected: tuple[type[Exception], ...]) -> list[str] | None:
    """The lines that a program ends with: one for each error, or one about the first that tells.

    None if an error is neither expected nor a refusal of the system, so that its traceback tells
    more.
    """
    found = list(single(error))
    if all(isinstance(each, expected) for each in found):
        return [str(each) for each in found]
    line = line_about(error, expected)
    return None if line is None else [line]
