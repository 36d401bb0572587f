"""What the commands of the name server and of the proxy share: servers without a log."""

import logging
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, closing, nullcontext
from functools import partial
from typing import NamedTuple

import click
import trio

from dledger.command_line.log_lines import PROGRESS, set_up_logging
from dledger.command_line.open_address import problem_of_open_address
from dledger.command_line.option_sources import place
from dledger.command_line.options import flag, option
from dledger.command_line.reloading import SettingsOnSignal
from dledger.command_line.server_signals import cancel_at_end_of_input, ending_signals
from dledger.command_line.supervisor import Supervisor
from dledger.command_line.tls_options import tls_value
from dledger.errors import ConfigInvalid
from dledger.loop_watch import watched_loop
from remoting.net.address import Address, parse_address
from remoting.net.bounded_log import BoundedLog
from remoting.net.errors import AddressMalformed

_progress = logging.getLogger(PROGRESS)

max_connections_option = option(
    "--max-connections",
    "Connections at once; as many as the process may open files for.",
    type=click.IntRange(1),
)
metrics_option = option(
    "--metrics",
    "Answer GET /metrics for Prometheus here; and /healthz and /readyz.",
    metavar="HOST:PORT",
)
exit_with_stdin_option = flag(
    "--exit-with-stdin",
    "End when standard input ends, as it does when the program that started this one dies.",
)


class Serving(NamedTuple):
    """A server that has begun.

    Attributes:
        listening: where clients connect.
        drain: called before the end; None if clients need no time to leave.
    """

    listening: Address
    drain: Callable[[], Awaitable[None]] | None = None


def addresses(ctx: click.Context) -> tuple[Address, Address | None]:
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


def check_protected(ctx: click.Context, address: Address, access: object, lacks: str) -> None:
    """Raise ConfigInvalid if other machines reach a server that nothing protects.

    Args:
        ctx: the options.
        address: where the server listens.
        access: the value of the option for access control.
        lacks: what protection is missing, for the error.
    """
    if tls_value(ctx, "tls-cert") is not None or access is not None:
        return
    problem = problem_of_open_address(address.host, lacks, is_insecure=ctx.params["insecure"])
    if problem is not None:
        raise ConfigInvalid(place(ctx, "listen"), problem)


def log_as(program: str, ctx: click.Context) -> None:
    """Set up the log by the options, with the program's name in each line."""
    form, level = ctx.params["log_format"], ctx.params["log_level"]
    set_up_logging("", program, form, level, BoundedLog(time.monotonic))


async def serve_until_signal(
    ctx: click.Context,
    program: str,
    what: str,
    start: Callable[[trio.Nursery], Awaitable[Serving]],
    reload: Callable[[], None],
    *,
    without_file: Callable[[], None],
    client: AbstractAsyncContextManager[object] | None = None,
) -> None:
    """Serve until Ctrl-C, SIGTERM or the end of standard input; read files again at each SIGHUP.

    Args:
        ctx: the options.
        program: the name in the log.
        what: the name in messages about settings: "the proxy".
        start: starts the server in a nursery.
        reload: reads certificates, and other files that options name, again.
        without_file: called instead at SIGHUP if the command has no file of settings.
        client: is open while the server runs.
    """

    def check(again: click.Context) -> None:
        addresses(again)

    with (
        watched_loop(),
        closing(Supervisor()) as supervisor,
        ending_signals() as signals,
        trio.open_signal_receiver(signal.SIGHUP) as hangups,
    ):
        async with nullcontext() if client is None else client, trio.open_nursery() as nursery:
            listening, drain = await start(nursery)
            _progress.info("%s listening on %s", program, listening, extra={"event": "listening"})
            if ctx.params["exit_with_stdin"]:
                nursery.start_soon(cancel_at_end_of_input, nursery.cancel_scope)
            log = partial(log_as, program)
            settings = SettingsOnSignal(ctx, what, (), check, log, reload, without_file)
            nursery.start_soon(settings.run, hangups, supervisor.reloading)
            nursery.start_soon(supervisor.answer_watchdog)
            supervisor.status(f"listening on {listening}")
            supervisor.ready()
            async for _ in signals:
                break
            supervisor.stopping()
            if drain is not None:
                await drain()
            nursery.cancel_scope.cancel()
