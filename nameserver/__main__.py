"""Run a name server: ``python -m nameserver --listen 127.0.0.1:9876``."""

import logging
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import click
import trio

from dledger.loop_watch import watched_loop
from nameserver.errors import SettingFileUnreadable
from nameserver.server import NAMESERVER_PORT, serve_nameserver
from remoting.net.address import Address, parse_address
from remoting.net.bounded_log import BoundedLog
from remoting.net.descriptors import raise_descriptor_limit
from remoting.net.errors import AddressMalformed, ListenFailed, PortInUse, TooFewDescriptors
from remoting.net.log_lines import LogLines
from remoting.net.server import ServerLimits

_STDIN = 0

# What keeps it from serving; told in one line.
_PROBLEMS = (PortInUse, ListenFailed, TooFewDescriptors, SettingFileUnreadable)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--listen",
    "address",
    default=f"127.0.0.1:{NAMESERVER_PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    help="Connections at once; as many as the process may open files for.",
)
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep settings such as order configurations in this file; only in memory without it.",
)
@click.option(
    "--exit-with-stdin",
    is_flag=True,
    help="End when standard input ends, as it does when the program that started this one dies.",
)
def main(
    address: str, max_connections: int | None, settings_file: Path | None, exit_with_stdin: bool
) -> None:
    """Tell clients where topics are. Run as many as you like."""
    handler = logging.StreamHandler()
    handler.addFilter(BoundedLog(time.monotonic))
    handler.setFormatter(LogLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    raise_descriptor_limit()
    try:
        trio.run(_serve, parse_address(address), max_connections, settings_file, exit_with_stdin)
    except (AddressMalformed, *_PROBLEMS) as error:
        sys.exit(f"nameserver: {error}")


async def _serve(
    address: Address,
    max_connections: int | None,
    settings_file: Path | None,
    exit_with_stdin: bool,
) -> None:
    """Serve until a signal, or the end of standard input."""
    with watched_loop(), trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        problem: Exception | None = None
        limits = ServerLimits(max_connections=max_connections)
        serve = partial(serve_nameserver, limits=limits, settings_file=settings_file)
        async with trio.open_nursery() as nursery:
            try:
                listening = await nursery.start(serve, address.host, address.port)
            except _PROBLEMS as error:
                # Raised below, so that it does not come wrapped in a group.
                problem = error
            else:
                click.echo(f"nameserver listening on {listening}")
                if exit_with_stdin:
                    nursery.start_soon(_wait_for_stdin, nursery.cancel_scope)
                async for _ in signals:
                    break
            nursery.cancel_scope.cancel()
        if problem is not None:
            raise problem


async def _wait_for_stdin(scope: trio.CancelScope) -> None:
    """Cancel `scope` when the other end of standard input is closed."""
    async with trio.lowlevel.FdStream(os.dup(_STDIN)) as stream:
        while await stream.receive_some():
            pass
    scope.cancel()


if __name__ == "__main__":
    main()
