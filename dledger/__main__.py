"""The `dledger` command."""

from __future__ import annotations

import sys

from dledger.commands.exit_codes import ExitCode, exit_code_of, single_errors
from dledger.commands.group_commands import commands
from dledger.errors import DLedgerError
from dledger.shown_output import escape_what_cannot_be_shown


def main() -> None:
    """Run the command; an error of ours, or of a file, is one line and an exit code."""
    escape_what_cannot_be_shown()
    try:
        commands()
    except OSError as error:
        if error.filename is None:
            raise
        hint = ": run this as the user that runs the node" * isinstance(error, PermissionError)
        print(f"dledger: {error.filename}: {error.strerror}{hint}", file=sys.stderr)
        sys.exit(ExitCode.FAILED)
    except (DLedgerError, BaseExceptionGroup) as error:
        ours = [each for each in single_errors(error) if isinstance(each, DLedgerError)]
        if len(ours) < len(list(single_errors(error))):
            raise
        for each in ours:
            print(f"dledger: {each}", file=sys.stderr)
        sys.exit(exit_code_of(ours))


if __name__ == "__main__":
    main()
