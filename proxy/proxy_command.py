"""Run a proxy: ``python -m proxy --listen 127.0.0.1:8081 --nameservers 127.0.0.1:9876``."""

import logging
from functools import partial
from pathlib import Path
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
from dledger.command_line.open_address import insecure_option
from dledger.command_line.option_sources import ServerCommand, as_toml, print_config_option
from dledger.command_line.options import FILE, flag, option
from dledger.command_line.server_file import server_file_option
from dledger.command_line.server_tls_options import server_tls_options, server_tls_values
from dledger.command_line.tls_options import tls_value
from dledger.errors import AddressInUse
from dledger.metrics.serving_metrics import serve_process_metrics
from dledger.node.collector import collect_seldom
from dledger_mq.connection.client import Client
from dledger_mq.errors import InvalidNameServers, InvalidTls
from proxy.own_certificate import own_tls
from proxy.server import PROTOCOLS, PROXY_PORT, Proxy, serve_proxy
from remoting.net.access_file import AccessFileUnusable, read_credentials
from remoting.net.address import Address
from remoting.net.descriptors import raise_descriptor_limit
from remoting.net.errors import AddressMalformed, ListenFailed, PortInUse, TooFewDescriptors
from remoting.net.tls import ServerTls, reload_or_tell, server_tls
from remoting.net.tls_config import Tls, TlsMode, read_server_tls
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# Errors of the start, reported in one line.
_PROBLEMS = (
    *(AddressMalformed, PortInUse, ListenFailed, TooFewDescriptors),
    *(AddressInUse, AccessFileUnusable, InvalidNameServers, InvalidTls),
)

_EPILOG: Final = """Every option may also stand in the file of --config, in the table [proxy], or in
the environment, as DLEDGER_PROXY_LISTEN. Flags go before the environment, and that before the
file. On SIGHUP the file, the certificates and the credentials are read again. SIGTERM asks clients
to go to another proxy first."""


@click.command(
    "proxy",
    cls=ServerCommand,
    program="proxy",
    expected=_PROBLEMS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@option(
    "--listen",
    "address",
    "Where clients of RocketMQ 5 connect.",
    default=f"127.0.0.1:{PROXY_PORT}",
    metavar="HOST:PORT",
)
@option(
    "--nameservers",
    "Name servers of the brokers: host:port;host:port.",
    default="127.0.0.1:9876",
)
@max_connections_option
@metrics_option
@exit_with_stdin_option
@option(
    "--credentials",
    "A file with the access_key and the secret_key of this proxy's user, where brokers have "
    "access control.",
    type=FILE,
)
@flag("--brokers-tls", "Speak TLS with brokers and name servers. Each option below does, too.")
@option(
    "--brokers-ca", "Certificates of the authorities that brokers' certificates are of.", type=FILE
)
@option("--brokers-cert", "Certificate to show to brokers.", type=FILE)
@option("--brokers-key", "Its key.", type=FILE)
@option(
    "--brokers-server-name",
    "The name in the certificates of brokers, if it is not where they are dialled.",
    metavar="NAME",
)
@server_tls_options
@insecure_option
@log_options("info")
@print_config_option
@click.pass_context
def main(ctx: click.Context, /, **options: Any) -> None:
    """Serve the gRPC clients of RocketMQ 5. Run as many as you like."""
    address, metrics = addresses(ctx)
    if options["print_config"]:
        click.echo(as_toml(ctx))
        return
    log_as("proxy", ctx)
    check_protected(ctx, address, options["credentials"], _LACKS)
    raise_descriptor_limit()
    collect_seldom()  # calls make no cycles: to look for them took a seventh of their time
    trio.run(_run, address, metrics, ctx)


server_file_option(main)


_LACKS: Final = (
    "neither TLS nor access control: give --tls-cert and --tls-key, or --credentials of a proxy's "
    "user"
)


def _tls(ctx: click.Context) -> ServerTls | None:
    """Return what the port speaks: with a certificate of its own if none is given."""
    values = server_tls_values(ctx)
    certificate, _key, _authorities, mode, _client_auth = values
    if certificate is None and mode is None:
        return own_tls(PROTOCOLS)
    if mode == TlsMode.DISABLED:
        return None
    return server_tls(read_server_tls(*values), protocols=PROTOCOLS)


def _brokers_tls(ctx: click.Context) -> Tls | None:
    found: list[Path | None] = [
        ctx.params[name] for name in ("brokers_ca", "brokers_cert", "brokers_key")
    ]
    server_name: str | None = ctx.params["brokers_server_name"]
    if not ctx.params["brokers_tls"] and not any((*found, server_name)):
        return None
    authorities, certificate, key = found
    return Tls(authorities=authorities, certificate=certificate, key=key, server_name=server_name)


def sign_again(client: Client, path: Path) -> None:
    """Ask brokers by what the file of credentials says now, or log why by the earlier ones."""
    try:
        client.remoting.sign_by(read_credentials(path))
    except AccessFileUnusable as error:
        _log.error("the earlier credentials stay in force: %s", quoted(error, 400))


async def _run(address: Address, metrics: Address | None, ctx: click.Context) -> None:
    options = ctx.params
    tls = _tls(ctx)
    credentials = options["credentials"]
    client = Client(
        options["nameservers"],
        credentials=None if credentials is None else read_credentials(credentials),
        tls=_brokers_tls(ctx),
    )

    async def start(nursery: trio.Nursery) -> Serving:
        serve = partial(
            serve_proxy,
            client,
            is_user=credentials is not None,
            tls=tls,
            max_connections=options["max_connections"],
        )
        listening, proxy = await nursery.start(serve, address.host, address.port)
        if metrics is not None:
            await nursery.start(serve_process_metrics, str(metrics), _scrapes(proxy))
        return Serving(listening, proxy.drain)

    def reload() -> None:
        if tls is not None and tls_value(ctx, "tls-cert") is not None:
            reload_or_tell([tls.reload])
        if credentials is not None:
            sign_again(client, credentials)

    await serve_until_signal(
        ctx, "proxy", "the proxy", start, reload, without_file=reload, client=client
    )


def _scrapes(proxy: Proxy) -> Any:
    # Imported here, because prometheus_client takes an eighth of a start.
    from proxy.exposition import metrics_of

    return lambda: metrics_of(proxy)
