"""`dledger serve`: runs one member of a group."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio

from dledger.command_line.log_lines import PROGRESS, log_options, set_up_logging
from dledger.command_line.node_options import (
    NODE_OPTIONS,
    SNAPSHOT_KEYS,
    declared,
    node_settings,
    option_of,
)
from dledger.command_line.open_address import (
    TLS_OR_USERS,
    insecure_log_option,
    problem_of_open_address,
)
from dledger.command_line.option_sources import (
    RememberingCommand,
    as_toml,
    located,
    place,
    print_config_option,
)
from dledger.command_line.options import FILE, flag, option
from dledger.command_line.reloading import SettingsOnSignal
from dledger.command_line.server_signals import cancel_at_end_of_input, cancel_on_signal
from dledger.command_line.supervisor import Supervisor
from dledger.command_line.tls_options import given_tls, tls_options
from dledger.config import CHANGEABLE, NodeConfig, parse_peers
from dledger.errors import ConfigInvalid
from dledger.metrics.serving_metrics import serve_metrics
from dledger.node.collector import collect_seldom
from dledger.node.host import open_node
from dledger.node.node import Node
from dledger.node.node_events import NodeEvents
from dledger.serving.users_file import UsersFile
from dledger.start_report import StartReport
from dledger.state_machine import LogOnly

_HELP = """Run one member of a group until Ctrl-C or SIGTERM.

The member keeps a log without a state machine of its own. Applications with one open a node from
Python: see `dledger.open_node`.

Every option may also stand in the file of `dledger --config FILE`, in the table [serve], or in the
environment, as DLEDGER_SERVE_NODE. Flags go before the environment, and that before the file. On
SIGHUP the file is read again, and with it certificates and users.

\b
  dledger serve --node n0 --dir /var/lib/log --users /etc/dledger-users.toml \\
    --peers n0=10.0.0.1:20911,n1=10.0.0.2:20911,n2=10.0.0.3:20911
  dledger --config /etc/dledger.toml serve --print-config
"""

# The settings that may change while the node runs.
_CHANGEABLE = ("preferred-leader", "scrub-period-hours", *SNAPSHOT_KEYS)

logger = logging.getLogger(__name__)
progress = logging.getLogger(PROGRESS)


@click.command(cls=RememberingCommand, help=_HELP)
@option("--group", "Name of the group.", default="group")
@option("--node", "node_id", "Which of the members this is.", required=True)
@option("--peers", "All members, as n0=127.0.0.1:20911,n1=...", required=True)
@option(
    "--dir",
    "folder",
    "Where the data goes; made if missing.",
    required=True,
    type=click.Path(path_type=Path),
)
@flag("--join", "joining", "The group is there, and adds this node: see `dledger members`.")
@flag(
    "--new", "The group has never begun: do not wait for all of --peers. Only for the first start."
)
@option(
    "--metrics",
    "Answer GET /metrics for Prometheus here, as 127.0.0.1:9464; and /healthz and /readyz.",
)
@log_options("info")
@flag("--exit-with-stdin", "Stop when standard input ends (for supervisors).")
@print_config_option
@tls_options
@option(
    "--users",
    "A file of users, and of what each may do at the port of the log, with the secret of members; "
    "see docs/security.md.",
    type=FILE,
)
@insecure_log_option
@declared(NODE_OPTIONS)
@click.pass_context
def serve(ctx: click.Context, /, **options: Any) -> None:
    config = checked_config(ctx)
    if options["print_config"]:
        click.echo(as_toml(ctx))
        return
    _set_up_logging(ctx)
    _check_protected(config, ctx)
    collect_seldom()
    trio.run(_serve, config, ctx, options["metrics"], options["exit_with_stdin"])


def checked_config(ctx: click.Context) -> NodeConfig:
    """Make the node's settings from the options. Raises ConfigInvalid, which names the option."""
    options = ctx.params
    try:
        return NodeConfig(
            group=options["group"],
            node_id=options["node_id"],
            peers=parse_peers("peers", options["peers"]),
            data_dir=options["folder"],
            joining=options["joining"],
            new=options["new"],
            tls=given_tls(ctx),
            users=options["users"],
            **node_settings(options),
        )
    except ConfigInvalid as error:
        key = option_of(error.setting).replace("_", "-")
        raise located(ctx, error, key) from error


def _check_protected(config: NodeConfig, ctx: click.Context) -> None:
    """Raise ConfigInvalid if other machines reach the port and nothing protects it, or if the file
    of users cannot be used.
    """
    speaks_tls = config.tls is not None
    users = None if config.users is None else UsersFile(config.users, speaks_tls=speaks_tls)
    if speaks_tls or (users is not None and users.asks):
        return
    host, insecure = config.listen_address.host, ctx.params["insecure"]
    problem = problem_of_open_address(host, TLS_OR_USERS, is_insecure=insecure)
    if problem is not None:
        key = "peers" if config.listen is None else "listen"
        raise ConfigInvalid(place(ctx, key), problem)


def _set_up_logging(ctx: click.Context) -> None:
    names = ("group", "node_id", "log_format", "log_level")
    set_up_logging(*(ctx.params[name] for name in names))


async def _serve(
    config: NodeConfig, ctx: click.Context, metrics: str | None, exit_with_stdin: bool
) -> None:
    start = StartReport()
    with closing(Supervisor()) as supervisor:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_on_signal, nursery.cancel_scope)
            nursery.start_soon(supervisor.answer_watchdog)
            if exit_with_stdin:
                nursery.start_soon(cancel_at_end_of_input, nursery.cancel_scope)
            nodes: list[Node] = []
            if metrics is not None:  # it answers while the log is read
                await nursery.start(serve_metrics, lambda: nodes, metrics)
            with trio.open_signal_receiver(signal.SIGHUP) as hangups:
                async with open_node(config, LogOnly()) as node:
                    nodes.append(node)
                    start.ended("log and port")
                    _tell_begin(node)
                    supervisor.ready()
                    try:
                        await _run_node(node, ctx, hangups, supervisor, start)
                    finally:
                        supervisor.stopping()


async def _run_node(
    node: Node,
    ctx: click.Context,
    hangups: AsyncIterable[int],
    supervisor: Supervisor,
    start: StartReport,
) -> None:
    settings = SettingsOnSignal(
        ctx,
        "the node",
        _CHANGEABLE,
        partial(_take_over, node),
        _set_up_logging,
        partial(_read_files, node, ctx),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(settings.run, hangups, supervisor.reloading)
        nursery.start_soon(_tell_started, node, start)
        await NodeEvents(node, progress).run()


def _take_over(node: Node, ctx: click.Context) -> None:
    wanted = checked_config(ctx)
    taken = {name: getattr(wanted, name) for name in CHANGEABLE}
    node.reconfigure(node.config.with_changes(taken))


def _read_files(node: Node, ctx: click.Context) -> None:
    """Read certificates and users again, from the paths given at the start."""

    def reload_users() -> None:
        _check_protected(node.config, ctx)  # the users' file may have become permissive
        node.reload_users()

    for is_given, what, reload in (
        (node.config.tls is not None, "certificates", node.reload_tls),
        (node.config.users is not None, "users", reload_users),
    ):
        if not is_given:
            continue
        try:
            reload()
        except ConfigInvalid as error:
            logger.error("the old %s stay in use: %s", what, error)
        else:
            logger.info("%s were read again", what)


async def _tell_started(node: Node, start: StartReport) -> None:
    """Log the duration of the start, once a leader is known."""
    async for change in node.role_changes():
        if change.leader is not None:
            start.ended("leader")
            logger.info("%s", start, extra={"event": "started"})
            return


def _tell_begin(node: Node) -> None:
    status = node.status()
    home, listen = node.config.address, node.config.listen_address
    place = f"{listen}, reached at {home}" if listen != home else str(home)
    progress.info("%s listens on %s", status.node_id, place, extra={"event": "listening"})
    text = "the log is empty"
    if status.last_index >= status.first_index:
        text = (
            f"the log holds entries {status.first_index}..{status.last_index}, "
            f"committed at least up to {status.committed}"
        )
    logger.info(
        text,
        extra={
            "event": "recovery",
            "term": status.term,
            "first_index": status.first_index,
            "last_index": status.last_index,
        },
    )
