"""How a command ends: an exit code, a line about an expected error, no traceback at Ctrl-C.

See docs/exit-codes.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import click

from dledger.declared_error import DeclaredError
from dledger.shown_output import escape_what_cannot_be_shown, escaped
from dledger.system_refusals import line_about, single


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1  # it was not done, or a check found a problem
    WRONG_CALL = 2  # click's own: an unknown option or argument
    OUTCOME_UNKNOWN = 3  # it may be in the log, or not
    INTERRUPTED = 130  # as a shell reports Ctrl-C


class CommandFailed(DeclaredError):
    """A command that did its work, but ends with a line and an exit code.

    Attributes:
        problem: the line.
        code: the exit code.
    """

    problem: str
    code: int = ExitCode.FAILED


class Commands(click.Group):
    """Commands that end with a line about an expected error, and silently at Ctrl-C.

    Args:
        program: the beginning of the line.
        expected: the errors, besides those that the system refuses.
        is_unknown: whether such an error leaves the outcome unknown.
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
        """Run the command that was typed. Click reports wrong calls."""
        _open_closed_outputs()
        escape_what_cannot_be_shown()
        with ending(self._program, self._expected, self._code):
            return super().main(*arguments, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C ends it silently, also in one of several tasks."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, BaseExceptionGroup) as error:
            if any(isinstance(one, KeyboardInterrupt) for one in single(error)):
                ctx.exit(ExitCode.INTERRUPTED)
            raise

    def _code(self, errors: Sequence[BaseException]) -> int:
        if any(map(self._is_unknown, errors)):
            return ExitCode.OUTCOME_UNKNOWN
        return next((e.code for e in errors if isinstance(e, CommandFailed)), ExitCode.FAILED)


def _open_closed_outputs() -> None:
    """Print to /dev/null where standard output or standard error is closed.

    Python has none then, and a command would fail where it prints what it has done. The descriptor
    is opened as well, before a file or a socket gets its number.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - to the end


@contextmanager
def ending(
    program: str,
    expected: tuple[type[Exception], ...],
    code_of: Callable[[Sequence[BaseException]], int] = lambda _errors: ExitCode.FAILED,
) -> Iterator[None]:
    """End the program at an expected error, or if the system refuses a resource.

    It ends with a line about each such error. Other errors keep their traceback, which tells more.

    Args:
        program: the beginning of a line.
        expected: the errors.
        code_of: returns the exit code for the errors that were raised.
    """
    try:
        yield
    except Exception as error:
        found = list(single(error))
        lines = [str(each) for each in found]
        if not all(isinstance(each, expected) for each in found):
            if (line := line_about(error, expected)) is None:
                raise
            lines = [line]
        for line in lines:
            # A server's words may be in it: they begin no line, and move no cursor.
            print(f"{program}: {escaped(line)}", file=sys.stderr)
        sys.exit(code_of(found))
