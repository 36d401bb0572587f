"""Run a name server: ``python -m nameserver --listen 127.0.0.1:9876``."""

import logging
from functools import partial
from typing import Any, Final

import click
import trio

from command_entry.stateless_server import (
    Serving,
    addresses,
    check_protected,
    exit_with_stdin_option,
    log_as,
    max_connections_option,
    metrics_option,
    serve_until_signal,
)
from dledger.command_line.log_lines import log_options
from dledger.command_line.open_address import TLS_OR_ACCESS, insecure_option
from dledger.command_line.option_sources import ServerCommand, as_toml, print_config_option
from dledger.command_line.options import FILE, option
from dledger.command_line.server_file import server_file_option
from dledger.command_line.server_tls_options import server_tls_options, server_tls_values
from dledger.errors import AddressInUse
from nameserver.errors import SettingFileUnreadable
from nameserver.server import NAMESERVER_PORT, serve_nameserver
from remoting.net.access_file import AccessFileInForce, AccessFileUnusable, read_access_file
from remoting.net.address import Address
from remoting.net.descriptors import raise_descriptor_limit
from remoting.net.errors import AddressMalformed, ListenFailed, PortInUse, TooFewDescriptors
from remoting.net.networks import Network, is_in, parse_networks
from remoting.net.server import ServerLimits
from remoting.net.tls import reload_or_tell, server_tls
from remoting.net.tls_config import read_server_tls

_log = logging.getLogger(__name__)

# Errors of the start, reported in one line.
_PROBLEMS = (
    *(AddressMalformed, PortInUse, ListenFailed, TooFewDescriptors, SettingFileUnreadable),
    *(AddressInUse, AccessFileUnusable),
)

_EPILOG: Final = """Every option may also stand in the file of --config, in the table [nameserver],
or in the environment, as DLEDGER_NAMESERVER_LISTEN. Flags go before the environment, and that
before the file. On SIGHUP the file is read again. Ctrl-C or SIGTERM ends it."""


class _NetworksText(click.ParamType[str]):
    """Networks, which stay a text: "10.0.0.0/8,127.0.0.1"."""

    name = "networks"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            if not parse_networks(value):
                self.fail("there is none: give networks, as 10.0.0.0/8,127.0.0.1", param, ctx)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


@click.command(
    "nameserver",
    cls=ServerCommand,
    program="nameserver",
    expected=_PROBLEMS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@option(
    "--listen",
    "address",
    "Where to listen.",
    default=f"127.0.0.1:{NAMESERVER_PORT}",
    metavar="HOST:PORT",
)
@max_connections_option
@option(
    "--settings",
    "settings_file",
    "Keep settings such as order configurations in this file; only in memory without it.",
    type=FILE,
)
@metrics_option
@option(
    "--changes-from",
    "Networks of brokers and operators, as 10.0.0.0/8,127.0.0.1; all others may only ask. "
    "By default anybody may register a broker and change what is told.",
    type=_NetworksText(),
)
@exit_with_stdin_option
@option(
    "--access",
    "access_file",
    "Only brokers and operators with this file may change routes and settings; see "
    "`dledger-mq access`.",
    type=FILE,
)
@server_tls_options
@insecure_option
@log_options("info")
@print_config_option
@click.pass_context
def main(ctx: click.Context, /, **options: Any) -> None:
    """Tell clients where topics are. Run as many as you like."""
    address, metrics = addresses(ctx)
    if options["print_config"]:
        click.echo(as_toml(ctx))
        return
    log_as("nameserver", ctx)
    check_protected(ctx, address, options["access_file"], TLS_OR_ACCESS)
    raise_descriptor_limit()
    trio.run(_run, address, metrics, ctx)


server_file_option(main)


def _may_change(networks: tuple[Network, ...] | None, host: str) -> bool:
    return networks is None or is_in(host, networks)


async def _run(address: Address, metrics: Address | None, ctx: click.Context) -> None:
    options = ctx.params
    tls = server_tls(read_server_tls(*server_tls_values(ctx)))
    networks, access_path = options["changes_from"], options["access_file"]
    access = None
    if access_path is not None:
        access = AccessFileInForce(access_path, read_access_file(access_path))
    serve = partial(
        serve_nameserver,
        limits=ServerLimits(max_connections=options["max_connections"]),
        settings_file=options["settings_file"],
        may_change=partial(_may_change, None if networks is None else parse_networks(networks)),
        metrics=metrics,
        tls=tls,
        admin=lambda: None if access is None else access.file.admin,
    )

    async def start(nursery: trio.Nursery) -> Serving:
        return Serving(await nursery.start(serve, address.host, address.port))

    def reload() -> None:
        if tls is not None:
            reload_or_tell([tls.reload])
        if access is not None:
            access.read_again()

    def without_file() -> None:
        if tls is None and access is None:
            # Routes and settings change only by requests.
            _log.info(
                "SIGHUP: there is no file to read again; routes and settings stay as they are"
            )
        reload()

    await serve_until_signal(
        ctx, "nameserver", "the name server", start, reload, without_file=without_file
    )
