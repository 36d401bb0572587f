"""The `dledger` command."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from dledger.commands.group_commands import commands
from dledger.errors import DLedgerError


def main() -> None:
    """Run the command; an error of ours is one line and exit code 1."""
    try:
        commands()
    except (DLedgerError, BaseExceptionGroup) as error:
        leaves = list(_leaves(error))
        if not all(isinstance(leaf, DLedgerError) for leaf in leaves):
            raise
        for leaf in leaves:
            print(f"dledger: {leaf}", file=sys.stderr)
        sys.exit(1)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside nested groups."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


if __name__ == "__main__":
    main()
