"""The `dledger` command."""

from __future__ import annotations

import sys

from dledger.commands.exit_codes import exit_code_of
from dledger.commands.group_commands import commands
from dledger.errors import DLedgerError
from dledger.shown_output import escape_what_cannot_be_shown
from dledger.system_refusals import line_about, single


def main() -> None:
    """Run the command; an error of ours, or of a file, is one line and an exit code."""
    escape_what_cannot_be_shown()
    try:
        commands()
    except Exception as error:
        found = list(single(error))
        ours = [each for each in found if isinstance(each, DLedgerError)]
        lines = [str(each) for each in ours]
        if len(ours) < len(found):
            line = line_about(error, (DLedgerError,))
            if line is None:
                raise
            lines = [line]
        for line in lines:
            print(f"dledger: {line}", file=sys.stderr)
        sys.exit(exit_code_of(ours))


if __name__ == "__main__":
    main()
