"""`dledger serve`: runs one member of a group."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Any

import click
import trio

from dledger.command_line.options import flag, option, options
from dledger.command_line.server_signals import cancel_at_end_of_input, cancel_on_signal
from dledger.command_line.tls_options import given_tls, tls_options
from dledger.commands.log_lines import FORMATS, LEVELS, PROGRESS, set_up_logging
from dledger.commands.node_options import NODE_OPTIONS, node_settings, option_of
from dledger.commands.option_sources import RememberingCommand, as_toml, located
from dledger.commands.reloading import SettingsOnSignal
from dledger.config import NodeConfig, parse_peers
from dledger.errors import ConfigInvalid
from dledger.metrics.serving_metrics import serve_metrics
from dledger.node.collector import collect_seldom
from dledger.node.host import open_node
from dledger.node.node import Node
from dledger.node.node_events import NodeEvents
from dledger.start_report import StartReport
from dledger.state_machine import LogOnly

_HELP = """Run one member of a group until Ctrl-C or SIGTERM.

The member keeps a log without a state machine of its own. Applications with one open a node from
Python: see `dledger.open_node`.

Every option may also stand in the file of `dledger --config FILE`, in the table [serve], or in the
environment, as DLEDGER_SERVE_NODE. Flags go before the environment, and that before the file. On
SIGHUP the file is read again.

\b
  dledger serve --node n0 --dir /var/lib/log \\
    --peers n0=10.0.0.1:20911,n1=10.0.0.2:20911,n2=10.0.0.3:20911
  dledger --config /etc/dledger.toml serve --print-config
"""

progress = logging.getLogger(PROGRESS)


# An option for each plain setting of a node.
node_limits = options(
    *(
        option("--" + one.name.replace("_", "-"), one.help, type=one.kind, default=one.default)
        for one in NODE_OPTIONS
    )
)


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
@option("--metrics", "Answer GET /metrics for Prometheus here, as 127.0.0.1:9464.")
@option(
    "--log-format",
    "Form of the log lines: text, or one JSON object a line.",
    type=click.Choice(FORMATS),
    default="text",
)
@option("--log-level", "From where.", type=click.Choice(LEVELS), default="info")
@flag("--exit-with-stdin", "Stop when standard input ends (for supervisors).")
@flag("--print-config", "Print the settings in force and their origins, and end.")
@tls_options
@node_limits
@click.pass_context
def serve(ctx: click.Context, /, **options: Any) -> None:
    config = checked_config(ctx)
    if options["print_config"]:
        click.echo(as_toml(ctx))
        return
    set_up_logging(config.group, config.node_id, options["log_format"], options["log_level"])
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
            **node_settings(options),
        )
    except ConfigInvalid as error:
        key = option_of(error.setting).replace("_", "-")
        raise located(ctx, error, key) from error


async def _serve(
    config: NodeConfig, ctx: click.Context, metrics: str | None, exit_with_stdin: bool
) -> None:
    start = StartReport()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_on_signal, nursery.cancel_scope)
        if exit_with_stdin:
            nursery.start_soon(cancel_at_end_of_input, nursery.cancel_scope)
        with trio.open_signal_receiver(signal.SIGHUP) as hangups:
            async with open_node(config, LogOnly()) as node:
                if metrics is not None:
                    await nursery.start(serve_metrics, lambda: [node], metrics)
                start.ended("log and port")
                _tell_begin(node)
                async with trio.open_nursery() as inner:
                    settings = SettingsOnSignal(node, ctx, checked_config)
                    inner.start_soon(settings.run, hangups)
                    inner.start_soon(_tell_started, node, start)
                    await NodeEvents(node, progress).run()


async def _tell_started(node: Node, start: StartReport) -> None:
    """Log the duration of the start, once a leader is known."""
    async for change in node.role_changes():
        if change.leader is not None:
            start.ended("leader")
            logging.getLogger(__name__).info("%s", start, extra={"event": "started"})
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
    logging.getLogger(__name__).info(
        text,
        extra={
            "event": "recovery",
            "term": status.term,
            "first_index": status.first_index,
            "last_index": status.last_index,
        },
    )
