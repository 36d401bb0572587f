"""Options and output that the commands of `dledger-mq` share."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from dledger.command_line.ending import CommandFailed, ExitCode
from dledger.command_line.options import FILE, given, json_option, kept_option, options
from dledger.command_line.rows import print_json_lines, print_table
from dledger_mq.admin.admin import Admin
from dledger_mq.connection.client import Client
from dledger_mq.errors import MessagingError, OutcomeUnknown, SomeFailed, outcome_unknown
from remoting.net.access_file import read_credentials
from remoting.net.tls_config import Tls
from remoting.wire.errors import RemotingError
from remoting.wire.signature import Credentials

DEFAULT_NAMESERVER: Final = "127.0.0.1:9876"


def _variable(name: str) -> dict[str, Any]:
    return {"envvar": f"DLEDGER_MQ_{name}", "show_envvar": True}


nameserver_option = options(
    kept_option(
        "--nameserver",
        "Name servers, separated by semicolons.",
        default=DEFAULT_NAMESERVER,
        envvar="NAMESRV_ADDR",
        show_envvar=True,
        metavar="HOST:PORT[;...]",
    ),
    kept_option(
        "--tls",
        "Speak TLS, and believe the system's authorities. Each option below means TLS as well.",
        is_flag=True,
        **_variable("TLS"),
    ),
    kept_option(
        "--tls-ca",
        "Certificates of the authorities that are believed.",
        type=FILE,
        **_variable("TLS_CA"),
    ),
    kept_option(
        "--tls-cert", "Certificate to show to servers.", type=FILE, **_variable("TLS_CERT")
    ),
    kept_option("--tls-key", "Its key.", type=FILE, **_variable("TLS_KEY")),
    kept_option(
        "--credentials",
        "A file with the access_key and the secret_key of a user, for access control.",
        type=FILE,
        **_variable("CREDENTIALS"),
    ),
    kept_option(
        "--tls-server-name",
        "The name in the servers' certificates, if it is not where they are dialled.",
        metavar="NAME",
        **_variable("TLS_SERVER_NAME"),
    ),
)

lines_option = json_option("Print a JSON object a line.")

Result = TypeVar("Result")

# What the commands expect, and tell in a line.
COMMAND_ERRORS: Final = (MessagingError, RemotingError)


def given_nameservers() -> tuple[str, ...]:
    return tuple(filter(None, given("--nameserver").split(";")))


def given_tls() -> Tls | None:
    """Return the certificates of this command; None for plain connections."""
    found = [given(f"--tls-{name}") for name in ("ca", "cert", "key", "server-name")]
    if not given("--tls") and not any(found):
        return None
    authorities, certificate, key, server_name = found
    return Tls(authorities=authorities, certificate=certificate, key=key, server_name=server_name)


def given_credentials() -> Credentials | None:
    """Return the user of this command, if it is given. Raises AccessFileUnusable."""
    path: Path | None = given("--credentials")
    return None if path is None else read_credentials(path)


def with_client(call: Callable[[Client], Awaitable[Result]]) -> Result:
    """Call with a client of the name servers of this command. Raises MessagingError."""
    nameservers, tls, credentials = given_nameservers(), given_tls(), given_credentials()

    async def task() -> Result:
        async with Client(nameservers, tls=tls, credentials=credentials) as client:
            return await call(client)

    return trio.run(task)


def ask(question: Callable[[Admin], Awaitable[Result]]) -> Result:
    """Run a call of `Admin` with the name servers of this command. Raises MessagingError."""

    async def call(client: Client) -> Result:
        async with Admin(client=client) as admin:
            return await question(admin)

    return with_client(call)


def may_be_stored(error: BaseException) -> bool:
    """Return whether it is unknown if a message was stored."""
    if isinstance(error, SomeFailed):
        return any(isinstance(outcome, OutcomeUnknown) for outcome in error.outcomes)
    return isinstance(error, OutcomeUnknown)


@contextmanager
def changing() -> Iterator[None]:
    """End the command with exit code 3 if the block leaves open whether a change was made."""
    try:
        yield
    except COMMAND_ERRORS as error:
        if not (outcome_unknown(error) or outcome_unknown(error.__cause__)):
            raise
        problem = f"{error}: the change may have been made, look before you repeat it"
        raise CommandFailed(problem, ExitCode.OUTCOME_UNKNOWN) from error


def change(call: Callable[[Admin], Awaitable[Result]]) -> Result:
    """Run a call of `Admin` that changes something, as `ask` does."""
    with changing():
        return ask(call)


def written_time(
    at_ms: int, zone: tzinfo | None = None, separator: str = " ", precision: str = "seconds"
) -> str:
    """Format a time, local by default; "-" for 0, and for one that no calendar has."""
    if at_ms <= 0:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, zone).isoformat(separator, precision)
    except (ValueError, OverflowError, OSError):
        return "-"


def print_rows(columns: Sequence[str], rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print the columns of rows as a table; with `as_json` whole rows, one object a line."""
    if as_json:
        print_json_lines(rows)
    else:
        cells = [[row.get(column) for column in columns] for row in rows]
        print_table(columns, cells, box="SIMPLE_HEAD", padding=0)
