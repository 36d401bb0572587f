"""Run a name server: ``python -m nameserver --listen 127.0.0.1:9876``."""

import ipaddress
import logging
import signal
import time
from collections.abc import AsyncIterable, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import click
import trio

from dledger.command_line.ending import ending
from dledger.command_line.options import FILE, flag, option
from dledger.command_line.server_signals import cancel_at_end_of_input, ending_signals
from dledger.command_line.server_tls_options import server_tls_options, server_tls_values
from dledger.errors import ConfigInvalid
from dledger.loop_watch import watched_loop
from nameserver.errors import SettingFileUnreadable
from nameserver.server import NAMESERVER_PORT, serve_nameserver
from remoting.net.access_file import AccessFileUnusable, read_access_file
from remoting.net.address import Address, parse_address
from remoting.net.bounded_log import BoundedLog
from remoting.net.descriptors import raise_descriptor_limit
from remoting.net.errors import AddressMalformed, ListenFailed, PortInUse, TooFewDescriptors
from remoting.net.log_lines import LogLines
from remoting.net.server import ServerLimits
from remoting.net.tls import ServerTls, reload_or_tell, server_tls
from remoting.net.tls_config import read_server_tls

_log = logging.getLogger(__name__)

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# Errors of the start, reported in one line.
_PROBLEMS = (
    *(AddressMalformed, ConfigInvalid, PortInUse, ListenFailed, TooFewDescriptors),
    *(SettingFileUnreadable, AccessFileUnusable),
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
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
    "--changes-from",
    "changes_from",
    "Networks of brokers and operators, as 10.0.0.0/8,127.0.0.1; all others may only ask. "
    "By default anybody may register a broker and change what is told.",
    callback=lambda _context, _option, text: _networks(text),
)
@option(
    "--access",
    "access_file",
    "Only brokers and operators with this file may change routes and settings; see "
    "`dledger-mq access`.",
    type=FILE,
)
@server_tls_options
@flag(
    "--exit-with-stdin",
    "End when standard input ends, as it does when the program that started this one dies.",
)
def main(
    address: str,
    max_connections: int | None,
    settings_file: Path | None,
    changes_from: tuple[Network, ...] | None,
    access_file: Path | None,
    exit_with_stdin: bool,
    **_tls: str | None,
) -> None:
    """Tell clients where topics are. Run as many as you like."""
    handler = logging.StreamHandler()
    handler.addFilter(BoundedLog(time.monotonic))
    handler.setFormatter(LogLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    raise_descriptor_limit()
    with ending("nameserver", _PROBLEMS):
        tls = server_tls(read_server_tls(*server_tls_values(click.get_current_context())))
        serve = partial(
            serve_nameserver,
            limits=ServerLimits(max_connections=max_connections),
            tls=tls,
            settings_file=settings_file,
            may_change=partial(_is_of, changes_from),
            admin=None if access_file is None else read_access_file(access_file).admin,
        )
        trio.run(_serve, parse_address(address), serve, tls, exit_with_stdin)


def _networks(text: str | None) -> tuple[Network, ...] | None:
    """Parse "10.0.0.0/8,127.0.0.1"; None stands for all networks."""
    if text is None:
        return None
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{error}: give networks, as 10.0.0.0/8,127.0.0.1") from None


def _is_of(networks: tuple[Network, ...] | None, host: str) -> bool:
    if networks is None:
        return True
    address = ipaddress.ip_address(host.partition("%")[0])
    return any(address in network for network in networks)


async def _serve(
    address: Address,
    serve: Callable[..., Awaitable[None]],
    tls: ServerTls | None,
    exit_with_stdin: bool,
) -> None:
    with (
        watched_loop(),
        ending_signals() as signals,
        trio.open_signal_receiver(signal.SIGHUP) as hangups,
    ):
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(serve, address.host, address.port)
            click.echo(f"nameserver listening on {listening}")
            if exit_with_stdin:
                nursery.start_soon(cancel_at_end_of_input, nursery.cancel_scope)
            nursery.start_soon(_read_again_at_hangups, hangups, tls)
            async for _ in signals:
                break
            nursery.cancel_scope.cancel()


async def _read_again_at_hangups(hangups: AsyncIterable[int], tls: ServerTls | None) -> None:
    """Read certificates again at SIGHUP; routes and settings change only by requests."""
    async for _ in hangups:
        if tls is not None:
            reload_or_tell([tls.reload])
            continue
        _log.info("SIGHUP: there is no file to read again; routes and settings stay as they are")
