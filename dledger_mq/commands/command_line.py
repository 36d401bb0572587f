"""Options and output that the commands of `dledger-mq` share."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import trio

from dledger.command_line.options import given, json_option, kept_option
from dledger.command_line.rows import print_json_lines, print_table
from dledger_mq.admin.admin import Admin
from dledger_mq.errors import OutcomeUnknown, SomeFailed

DEFAULT_NAMESERVER: Final = "127.0.0.1:9876"

nameserver_option = kept_option(
    "--nameserver",
    "Name servers, separated by semicolons.",
    default=DEFAULT_NAMESERVER,
    envvar="NAMESRV_ADDR",
    metavar="HOST:PORT[;...]",
)
lines_option = json_option("Print a JSON object a line.")

Result = TypeVar("Result")


def given_nameservers() -> tuple[str, ...]:
    return tuple(filter(None, given("--nameserver").split(";")))


def ask(question: Callable[[Admin], Awaitable[Result]]) -> Result:
    """Run a call of `Admin` with the name servers of this command. Raises MessagingError."""
    nameservers = given_nameservers()

    async def task() -> Result:
        async with Admin(nameservers=nameservers) as admin:
            return await question(admin)

    return trio.run(task)


def may_be_stored(error: BaseException) -> bool:
    """Return whether it is unknown if a message was stored."""
    if isinstance(error, SomeFailed):
        return any(isinstance(outcome, OutcomeUnknown) for outcome in error.outcomes)
    return isinstance(error, OutcomeUnknown)


def print_rows(columns: Sequence[str], rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print the columns of rows as a table; with `as_json` whole rows, one object a line."""
    if as_json:
        print_json_lines(rows)
    else:
        cells = [[row.get(column) for column in columns] for row in rows]
        print_table(columns, cells, box="SIMPLE_HEAD", padding=0)
