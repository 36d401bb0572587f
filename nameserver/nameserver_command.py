"""Run a name server: ``python -m nameserver --listen 127.0.0.1:9876``."""

import logging
import signal
import time
from collections.abc import AsyncIterable
from contextlib import closing
from functools import partial
from typing import Any, Final

import click
import trio

from dledger.command_line.log_lines import PROGRESS, log_options, set_up_logging
from dledger.command_line.open_address import insecure_option, problem_of_open_address
from dledger.command_line.option_sources import (
    ServerCommand,
    as_toml,
    place,
)
from dledger.command_line.options import FILE, flag, option
from dledger.command_line.reloading import SettingsOnSignal
from dledger.command_line.server_file import server_file_option
from dledger.command_line.server_signals import cancel_at_end_of_input, ending_signals
from dledger.command_line.server_tls_options import server_tls_options, server_tls_values
from dledger.command_line.supervisor import Supervisor
from dledger.command_line.tls_options import tls_value
from dledger.errors import AddressInUse, ConfigInvalid
from dledger.loop_watch import watched_loop
from nameserver.errors import SettingFileUnreadable
from nameserver.server import NAMESERVER_PORT, serve_nameserver
from remoting.net.access_file import AccessFileInForce, AccessFileUnusable, read_access_file
from remoting.net.address import Address, parse_address
from remoting.net.bounded_log import BoundedLog
from remoting.net.descriptors import raise_descriptor_limit
from remoting.net.errors import AddressMalformed, ListenFailed, PortInUse, TooFewDescriptors
from remoting.net.networks import Network, is_in, parse_networks
from remoting.net.server import ServerLimits
from remoting.net.tls import ServerTls, reload_or_tell, server_tls
from remoting.net.tls_config import read_server_tls

_log = logging.getLogger(__name__)
_progress = logging.getLogger(PROGRESS)

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
@option(
    "--max-connections",
    "Connections at once; as many as the process may open files for.",
    type=click.IntRange(1),
)
@option(
    "--settings",
    "settings_file",
    "Keep settings such as order configurations in this file; only in memory without it.",
    type=FILE,
)
@option(
    "--metrics",
    "Answer GET /metrics for Prometheus here; and /healthz and /readyz.",
    metavar="HOST:PORT",
)
@option(
    "--changes-from",
    "Networks of brokers and operators, as 10.0.0.0/8,127.0.0.1; all others may only ask. "
    "By default anybody may register a broker and change what is told.",
    type=_NetworksText(),
)
@flag(
    "--exit-with-stdin",
    "End when standard input ends, as it does when the program that started this one dies.",
)
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
@flag("--print-config", "Print the settings in force and their origins, and end.")
@click.pass_context
def main(ctx: click.Context, /, **options: Any) -> None:
    """Tell clients where topics are. Run as many as you like."""
    address, metrics = _addresses(ctx)
    if options["print_config"]:
        click.echo(as_toml(ctx))
        return
    _set_up_logging(ctx)
    _check_protected(ctx, address)
    raise_descriptor_limit()
    trio.run(_run, address, metrics, ctx)


server_file_option(main)


def _check_protected(ctx: click.Context, address: Address) -> None:
    """Raise ConfigInvalid if other machines reach a name server that nothing protects."""
    if tls_value(ctx, "tls-cert") is not None or ctx.params["access_file"] is not None:
        return
    problem = problem_of_open_address(address.host, is_insecure=ctx.params["insecure"])
    if problem is not None:
        raise ConfigInvalid(place(ctx, "listen"), problem)


def _set_up_logging(ctx: click.Context) -> None:
    form, level = ctx.params["log_format"], ctx.params["log_level"]
    set_up_logging("", "nameserver", form, level, BoundedLog(time.monotonic))


def _addresses(ctx: click.Context) -> tuple[Address, Address | None]:
    """Return where to listen, and where for scrapers.

    Raises ConfigInvalid, which names the place of the option.
    """
    metrics = ctx.params["metrics"]
    return (
        _address(ctx, "listen", ctx.params["address"]),
        None if metrics is None else _address(ctx, "metrics", metrics),
    )


def _address(ctx: click.Context, key: str, text: str) -> Address:
    try:
        return parse_address(text)
    except AddressMalformed as error:
        raise ConfigInvalid(place(ctx, key), str(error)) from error


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
    with (
        watched_loop(),
        closing(Supervisor()) as supervisor,
        ending_signals() as signals,
        trio.open_signal_receiver(signal.SIGHUP) as hangups,
    ):
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(serve, address.host, address.port)
            _progress.info("nameserver listening on %s", listening, extra={"event": "listening"})
            if options["exit_with_stdin"]:
                nursery.start_soon(cancel_at_end_of_input, nursery.cancel_scope)
            nursery.start_soon(_read_again, ctx, hangups, supervisor, tls, access)
            nursery.start_soon(supervisor.answer_watchdog)
            supervisor.status(f"listening on {listening}")
            supervisor.ready()
            async for _ in signals:
                break
            supervisor.stopping()
            nursery.cancel_scope.cancel()


async def _read_again(
    ctx: click.Context,
    hangups: AsyncIterable[int],
    supervisor: Supervisor,
    tls: ServerTls | None,
    access: AccessFileInForce | None,
) -> None:
    """Read the file, the certificates and the file of access control again at each SIGHUP. Routes
    and settings change only by requests.
    """

    def check(again: click.Context) -> None:
        _addresses(again)

    def reload() -> None:
        if tls is not None:
            reload_or_tell([tls.reload])
        if access is not None:
            access.read_again()

    def without_file() -> None:
        if tls is None and access is None:
            _log.info(
                "SIGHUP: there is no file to read again; routes and settings stay as they are"
            )
        reload()

    settings = SettingsOnSignal(
        ctx, "the name server", (), check, _set_up_logging, reload, without_file
    )
    await settings.run(hangups, supervisor.reloading)
