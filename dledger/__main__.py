"""The `dledger` command."""

from __future__ import annotations

from dledger.commands.group_commands import commands


def main() -> None:
    commands()


if __name__ == "__main__":
    main()
