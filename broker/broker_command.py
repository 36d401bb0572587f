"""The command: `python -m broker --group broker-a --node n0 --peers ... --listen ... --dir ...`."""

import errno
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import trio

from broker import second_port
from broker.config import (
    DEFAULT_CLUSTER,
    DEFAULT_SNAPSHOTS,
    BrokerConfig,
)
from broker.config_of_options import LOG_USERS, SNAPSHOTS, checked_config
from broker.errors import BrokerError, SettingInvalid
from broker.retention.policy import RetentionPolicy
from broker.server import Broker, Surroundings, run_broker
from broker.transactions.policy import CheckPolicy
from dledger import DLedgerError, collect_seldom
from dledger.command_line.ending import ExitCode
from dledger.command_line.log_lines import PROGRESS, log_options, set_up_logging
from dledger.command_line.node_options import NODE_OPTIONS, SNAPSHOT_KEYS, declared
from dledger.command_line.open_address import (
    TLS_OR_ACCESS,
    TLS_OR_ACCESS_OF_LOG,
    insecure_option,
    problem_of_open_address,
)
from dledger.command_line.option_sources import (
    RememberingCommand,
    as_toml,
    place,
    print_config_option,
)
from dledger.command_line.options import FILE, Decorated, flag, option
from dledger.command_line.reloading import SettingsOnSignal
from dledger.command_line.server_file import server_file_option
from dledger.command_line.server_signals import end_of_input, ending_signals
from dledger.command_line.server_tls_options import server_tls_options
from dledger.command_line.supervisor import Supervisor
from dledger.start_report import StartReport
from dledger.system_refusals import line_about
from remoting.net.access_file import AccessFileInForce
from remoting.net.address import Address
from remoting.net.bounded_log import BoundedLog
from remoting.net.descriptors import raise_descriptor_limit
from remoting.wire.errors import RemotingError
from remoting.wire.quoted import quoted


def main(arguments: list[str] | None = None) -> int:
    """Run a broker until a signal ends it. Print one line about an error; return the exit code."""
    try:
        return broker.main(arguments, prog_name=_PROGRAM, standalone_mode=False) or 0
    except click.ClickException as error:
        problem = " ".join(error.format_message().split())
        return _fail(
            SettingInvalid("arguments", f"{problem}; see {_PROGRAM} --help"), error.exit_code
        )
    except click.Abort:
        return ExitCode.INTERRUPTED
    except BaseException as error:
        if (line := line_about(error, (BrokerError, DLedgerError, RemotingError))) is None:
            raise
        return _fail(line)


_log = logging.getLogger(__name__)
_progress = logging.getLogger(PROGRESS)

_PROGRAM: Final = "python -m broker"
_DEFAULT: Final = RetentionPolicy()
_CHECKS: Final = CheckPolicy()

# The settings that may change while a broker runs; see `Broker.reconfigure`.
_CHANGEABLE: Final = (
    *("prefer", "auto-create-topics", "keep-hours", "delete-at-hours"),
    *("disk-clean-percent", "disk-force-percent", "disk-refuse-percent"),
    *("transaction-check-after-seconds", "transaction-check-every-seconds"),
    *("transaction-max-checks", "transaction-give-up-hours", "log-users"),
    *SNAPSHOT_KEYS,
)

_NODE_OPTIONS: Final = (
    *(one for one in NODE_OPTIONS if one.name == "election_timeout_ms"),
    *SNAPSHOTS,
)
_NODE_DEFAULTS: Final = {one.name: getattr(DEFAULT_SNAPSHOTS, one.field) for one in SNAPSHOTS}

_EPILOG: Final = """Every option may also stand in the file of --config, in the table [broker], or
in the environment, as DLEDGER_BROKER_NODE. Flags go before the environment, and that before the
file. On SIGHUP the file is read again. Ctrl-C or SIGTERM ends it.

\b
  python -m broker --group broker-a --node n0 --peers n0=127.0.0.1:20911 \\
    --listen 127.0.0.1:10911 --nameservers 127.0.0.1:9876 --dir /tmp/n0
  python -m broker --config /etc/dledger/broker.toml --print-config
"""


def _number(name: str, default: float, explanation: str) -> Callable[[Decorated], Decorated]:
    return option(name, explanation, type=int, default=default)


@click.command(
    "broker",
    cls=RememberingCommand,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@option("--group", "Name of the group: what clients see as broker name.", required=True)
@option("--node", "This member's id, one of --peers.", required=True)
@option("--peers", "All members: n0=host:port,n1=host:port,...", required=True)
@flag("--join", "Join a group that runs; --peers is this member alone.")
@flag(
    "--new", "The group has never begun: do not wait for all of --peers. Only for the first start."
)
@option("--listen", "Where clients connect: host:port.", required=True)
@option(
    "--advertise", "How clients reach the group, if not by --listen-group or --listen: IPv4:port."
)
@option(
    "--listen-group",
    "Where clients connect that want the leader, whichever member that is: host:port.",
)
@flag("--share-port", "Members on this machine share the port of --listen-group.")
@option(
    "--relays-from",
    "Networks of members that pass clients on, and of other relays, as 10.0.0.0/8: PROXY "
    "headers from there are believed. The addresses in --peers with --listen-group, else none.",
    default="",
    show_default=False,
)
@option(
    "--listen-peers", "Where the other members connect, if not at this member's address in --peers."
)
@option("--prefer", "The member that should lead whenever it is healthy.")
@option("--nameservers", "Name servers: host:port;host:port.", default="", show_default=False)
@option(
    "--dir",
    "directory",
    "Folder for the log and the consume queues.",
    required=True,
    type=click.Path(path_type=Path),
)
@option("--cluster", "Name of the cluster.", default=DEFAULT_CLUSTER)
@option(
    "--auto-create-topics/--no-auto-create-topics",
    "Whether a first message creates its topic.",
    default=True,
)
@option(
    "--max-connections",
    "Connections of clients at once; as many as the process may open files for.",
    type=int,
)
@option(
    "--metrics", "Answer GET /metrics for Prometheus here: host:port; and /healthz and /readyz."
)
@declared(_NODE_OPTIONS, _NODE_DEFAULTS)
@_number("--keep-hours", _DEFAULT.keep_hours, "Messages are kept for so many hours.")
@option(
    "--delete-at-hours",
    "Older ones go at these hours of the day, local time, as 4;16.",
    default=";".join(map(str, sorted(_DEFAULT.at_hours))),
)
@_number(
    "--disk-clean-percent",
    _DEFAULT.clean_percent,
    "Older ones go at any hour when more of the disk is used.",
)
@_number(
    "--disk-force-percent",
    _DEFAULT.force_percent,
    "The oldest ones go, however old, when more of the disk is used.",
)
@_number(
    "--disk-refuse-percent",
    _DEFAULT.refuse_percent,
    "No message is taken when more of the disk is used.",
)
@_number(
    "--transaction-check-after-seconds",
    _CHECKS.after_s,
    "A producer that leaves a transaction open for so long is asked how it ends.",
)
@_number(
    "--transaction-check-every-seconds",
    _CHECKS.every_s,
    "It is asked again after so long.",
)
@_number(
    "--transaction-max-checks",
    _CHECKS.max_checks,
    "After so many questions the transaction is given up.",
)
@_number(
    "--transaction-give-up-hours",
    _CHECKS.give_up_hours,
    "And after so long if no producer of its group is there to be asked.",
)
@option(
    "--pass-over-entry",
    "pass_over",
    "DANGEROUS: never apply this entry of the log. Only for an entry that no program reads, "
    "and only with the same entries on every member: others come to another state.",
    type=click.IntRange(0),
    multiple=True,
)
@option(
    "--access",
    "access_file",
    "Switch access control on by this file, the same for all members; see `dledger-mq access`.",
    type=FILE,
)
@option(
    "--log-users",
    "With --access, whether the port of the log asks for users: enforcing, or permissive while "
    "members of earlier versions run.",
    type=click.Choice(LOG_USERS),
    default=LOG_USERS[0],
)
@server_tls_options
@option(
    "--tls-peers-ca",
    "Certificates of the authorities that sign those of members, if not --tls-ca: then a client's "
    "certificate opens no connection to the log.",
    type=FILE,
)
@insecure_option
@log_options("warning")
@flag("--exit-with-stdin", "End when standard input ends, so that no child outlives its parent.")
@print_config_option
@click.pass_context
def broker(ctx: click.Context, /, **options: Any) -> None:
    """Run one member of a group of brokers: a RocketMQ broker over a replicated log."""
    config = checked_config(ctx)
    if options["print_config"]:
        click.echo(as_toml(ctx))
        return
    _set_up_logging(ctx)
    _check_protected(config, ctx)
    _warn_of_second_port(config)
    collect_seldom()
    raise_descriptor_limit()
    trio.run(_run, config, ctx)


server_file_option(broker)


def _check_protected(config: BrokerConfig, ctx: click.Context) -> None:
    """Raise SettingInvalid if other machines reach a port of a broker that nothing protects."""
    hosts: dict[str, str] = {}
    if config.tls is None and config.access is None:
        hosts["listen"] = config.listen.host
        if config.listen_group is not None:
            hosts["listen-group"] = config.listen_group.host
    log = "peers" if config.listen_peers is None else "listen-peers"
    if config.log_tls is None and (config.access is None or not config.log_asks):
        hosts[log] = config.node.listen_address.host
    for key, host in hosts.items():
        lacks = TLS_OR_ACCESS_OF_LOG if key == log else TLS_OR_ACCESS
        problem = problem_of_open_address(host, lacks, is_insecure=ctx.params["insecure"])
        if problem is not None:
            raise SettingInvalid(place(ctx, key), problem)


def _set_up_logging(ctx: click.Context) -> None:
    group, node, form, level = (
        ctx.params[name] for name in ("group", "node", "log_format", "log_level")
    )
    set_up_logging(group, node, form, level, BoundedLog(time.monotonic))


def _warn_of_second_port(config: BrokerConfig) -> None:
    """Warn if clients with a VIP channel will not find this broker. The broker starts all the same,
    as other clients will.
    """
    if (advice := second_port.advice(config)) is not None:
        _log.warning("%s", quoted(advice, 400))
        return
    address = Address(config.listen.host, max(0, config.listen.port + second_port.SECOND_PORT))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                _log.warning(
                    "another program listens on %s, where clients with a VIP channel, such as "
                    "RocketMQ's dashboard, look for this broker, and fail: give --listen another "
                    "port",
                    address,
                )


async def _run(config: BrokerConfig, ctx: click.Context) -> None:
    with (
        closing(Supervisor()) as supervisor,
        trio.open_signal_receiver(signal.SIGHUP) as hangups,
    ):
        async with trio.open_nursery() as nursery:
            await _serve(config, ctx, hangups, supervisor, nursery)


async def _serve(
    config: BrokerConfig,
    ctx: click.Context,
    hangups: AsyncIterable[int],
    supervisor: Supervisor,
    nursery: trio.Nursery,
) -> None:
    running: list[Broker] = []
    nursery.start_soon(supervisor.answer_watchdog)
    nursery.start_soon(_end_at_signal, running, supervisor, nursery)
    if ctx.params["exit_with_stdin"]:
        nursery.start_soon(_cancel_at_end_of_input, running, nursery.cancel_scope)
    surroundings = Surroundings(
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        process_id=os.getpid(),
        hour_of=lambda time_ms: time.localtime(time_ms / 1000).tm_hour,
    )

    def report(text: str, /, **fields: object) -> None:
        _progress.info("%s", text, extra=fields)
        supervisor.status(text)

    supervisor.status("the log is being read")
    start = partial(run_broker, config, surroundings, report, StartReport())
    running.append(await nursery.start(start))
    supervisor.ready()
    nursery.start_soon(_read_again, running[0], ctx, hangups, supervisor)


async def _read_again(
    broker: Broker, ctx: click.Context, hangups: AsyncIterable[int], supervisor: Supervisor
) -> None:
    """Read the file, the certificates and the file of access control again at each SIGHUP."""
    access_path, access = ctx.params["access_file"], broker.config.access
    in_force = None
    if access is not None:
        in_force = AccessFileInForce(access_path, access, broker.take_access)

    def take(again: click.Context) -> None:
        config = checked_config(again)
        _check_protected(config, again)
        broker.reconfigure(config)

    def reload() -> None:
        if broker.config.tls is not None:
            broker.tls.reload()
        if in_force is not None:
            in_force.read_again()

    def without_file() -> None:
        if broker.config.tls is None and in_force is None:
            _log.warning(
                "SIGHUP: there is no file to read again; settings that may change while brokers "
                "run are in the log, see `dledger-mq settings`"
            )
        reload()

    settings = SettingsOnSignal(
        ctx, "the broker", _CHANGEABLE, take, _set_up_logging, reload, without_file
    )
    await settings.run(hangups, supervisor.reloading)


async def _end_at_signal(
    running: list[Broker], supervisor: Supervisor, nursery: trio.Nursery
) -> None:
    """End at the first signal, once leadership is handed over; at a second signal, at once."""
    is_ending = False
    with ending_signals() as signals:
        async for _signal in signals:
            supervisor.stopping()
            if is_ending or not running:
                nursery.cancel_scope.cancel()
            else:
                is_ending = True
                nursery.start_soon(_end, running[0], nursery.cancel_scope)


async def _end(broker: Broker, scope: trio.CancelScope) -> None:
    await broker.end()
    scope.cancel()


async def _cancel_at_end_of_input(running: list[Broker], scope: trio.CancelScope) -> None:
    await end_of_input()
    if running:
        await running[0].say_farewell()
    scope.cancel()


def _fail(error: BaseException | str, exit_code: int = 1) -> int:
    print(f"broker: {error}", file=sys.stderr, flush=True)
    return exit_code
