"""The `dledger` command."""

from __future__ import annotations

import sys

from dledger.cli import commands
from dledger.errors import DLedgerError


def main() -> None:
    """Run the command; an error of ours is one line and exit code 1."""
    try:
        commands()
    except DLedgerError as error:
        print(f"dledger: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
