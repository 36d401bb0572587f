"""`dledger-mq up`: run groups of brokers on this machine."""

import math
import signal
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
import trio

from dledger.command_line.log_lines import log_options
from dledger.command_line.options import EXISTING_FOLDER, FILE, FOLDER, NumberRange, flag, option
from dledger.command_line.rows import say
from dledger.command_line.server_signals import ending_signals
from dledger_mq.admin.admin import Admin
from dledger_mq.clusters.certificate_folder import CLIENT, NAMESERVER, CertificateFolder
from dledger_mq.clusters.group_directory import (
    MAX_GROUPS,
    MAX_NODES,
    ClusterPlan,
    GroupDirectory,
    GroupPlan,
)
from dledger_mq.clusters.local_cluster import LocalCluster
from dledger_mq.clusters.local_leaders import DOUBT_S, members_in_doubt, serving_leaders
from dledger_mq.clusters.new_groups import CLUSTER, new_groups, new_grpc_address
from dledger_mq.commands.command_line import DEFAULT_NAMESERVER
from dledger_mq.connection.client import Client
from dledger_mq.errors import GroupDirectoryError, MessagingError
from remoting.net.access_file import new_access_file
from remoting.net.address import parse_address
from remoting.net.errors import AddressMalformed
from remoting.wire.errors import RemotingError

_NO_GRPC: Final = "off"

# How often the name server is asked for the leader.
_LOOK_S: Final = 0.2


@click.command("up")
@option(
    "--nodes",
    "node_count",
    "How many brokers a group has, 3 for a new directory; a directory keeps its number.",
    type=click.IntRange(1, MAX_NODES),
)
@option(
    "--groups",
    "group_count",
    "How many groups, each led by another node if they can; 1 for a new directory.",
    type=click.IntRange(1, MAX_GROUPS),
)
@option("--dir", "path", "Where everything is kept.", required=True, type=FOLDER)
@option("--nameserver", f"Where the name server listens, {DEFAULT_NAMESERVER} for a new directory.")
@option(
    "--grpc",
    "Where clients of RocketMQ 5 connect by gRPC, 127.0.0.1:8081 for a new directory (or a free "
    "port if that is taken); `off` for none. A directory keeps it.",
    metavar="[HOST:]PORT",
)
@option(
    "--tls-dir",
    "tls_path",
    "Only TLS, with the certificates of this folder, as `dledger-mq certificates` makes it; a "
    "directory keeps it.",
    type=EXISTING_FOLDER,
)
@flag(
    "--access-control",
    "with_access",
    "Only users may do something; the credentials of the first one are in access.toml of --dir. "
    "A directory keeps it.",
)
@option(
    "--restart-after",
    "restart_after_s",
    "Start what died again after so long; by default it stays dead.",
    type=NumberRange(0),
    metavar="SECONDS",
)
@option(
    "--config",
    "A file with options of the name server and the brokers, in TOML; those that this command "
    "gives them go before it.",
    type=FILE,
)
@log_options(None, None)
def up(
    node_count: int | None,
    group_count: int | None,
    path: Path,
    nameserver: str | None,
    grpc: str | None,
    tls_path: Path | None,
    with_access: bool,
    restart_after_s: float | None,
    config: Path | None,
    log_format: str | None,
    log_level: str | None,
) -> None:
    """Run a name server and groups of brokers until Ctrl-C.

    Prints a line that begins with "ready" once a leader of each group serves.
    """
    nameserver = None if nameserver is None else _address(nameserver, "--nameserver")
    directory = GroupDirectory(path)
    tls = None if tls_path is None else CertificateFolder(tls_path.absolute())
    passed_on = {"--config": config, "--log-format": log_format, "--log-level": log_level}
    more = [word for name, value in passed_on.items() if value for word in (name, str(value))]

    async def task() -> None:
        directory.lock()
        try:
            plan = _plan(directory, node_count, group_count, nameserver)
            plan = replace(plan, grpc=_grpc_address(directory, plan, grpc))
            if tls is not None:
                plan = replace(plan, tls=tls)
            if with_access:
                plan = replace(plan, access=_access_file(path))
            if plan.tls is not None:
                plan.tls.check([NAMESERVER, CLIENT, *(node.name for node in plan.nodes)])
            await _run(LocalCluster(directory, plan, say, restart_after_s, more), plan)
        finally:
            directory.unlock()

    trio.run(task)


def _access_file(path: Path) -> Path:
    """Return the file of access control of a directory, which is made if it is missing."""
    file = path.absolute() / "access.toml"
    if not file.exists():
        new_access_file(file, "admin")
        say(f"{file} has the credentials of user admin")
    return file


def _grpc_address(directory: GroupDirectory, plan: ClusterPlan, asked: str | None) -> str | None:
    """Return where the proxy listens. Raises BadParameter."""
    if asked is None:
        is_new = directory.read_plan() is None
        return new_grpc_address() if is_new else plan.grpc
    if asked == _NO_GRPC:
        return None
    return _address(f"127.0.0.1:{asked}" if asked.isdecimal() else asked, "--grpc")


def _address(text: str, option: str) -> str:
    """Raises BadParameter."""
    try:
        return str(parse_address(text))
    except AddressMalformed as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def _plan(
    directory: GroupDirectory,
    node_count: int | None,
    group_count: int | None,
    nameserver: str | None,
) -> ClusterPlan:
    """Return the plan of the directory, or a new one.

    Raises:
        GroupDirectoryError: its plan cannot be read, or contradicts the options.
    """
    plan = directory.read_plan()
    if plan is None:
        groups = new_groups(group_count or 1, node_count or 3)
        return ClusterPlan(CLUSTER, nameserver or DEFAULT_NAMESERVER, groups)
    for name, asked, found in (
        ("--groups", group_count, len(plan.groups)),
        ("--nodes", node_count, len(plan.groups[0].nodes)),
    ):
        if asked not in (None, found):
            raise GroupDirectoryError(
                str(directory.path),
                f"it was made with {name} {found}, not {asked}; leave {name} out, or choose "
                "another directory",
            )
    return replace(plan, nameserver=nameserver or plan.nameserver)


async def _run(cluster: LocalCluster, plan: ClusterPlan) -> None:
    """Start all processes; end them at a signal."""
    with ending_signals() as signals:
        async with trio.open_nursery() as nursery:

            async def start() -> None:
                for program in cluster.programs():
                    await nursery.start(cluster.keep_running, program)
                await _say_ready(plan)

            nursery.start_soon(start)
            async for number in signals:
                say(f"stopping ({signal.Signals(number).name})")
                break
            nursery.cancel_scope.cancel()
    say("stopped")


async def _say_ready(plan: ClusterPlan) -> None:
    """Report a leader once the name server names it, it answers a request, and all members of its
    group count, so that any of them may be lost.
    """
    waiting = {group.name: group for group in plan.groups}
    patience_over_at = math.inf
    async with (
        Client([plan.nameserver], tls=plan.client_tls, credentials=plan.credentials()) as client,
        Admin(client=client) as admin,
    ):
        while waiting:
            await trio.sleep(_LOOK_S)
            try:
                leaders = await serving_leaders(client, admin, plan)
            except (MessagingError, RemotingError):
                # The name server does not answer yet; the processes' own lines show the progress.
                continue
            if len(leaders) == len(plan.groups):
                patience_over_at = min(patience_over_at, trio.current_time() + DOUBT_S)
            in_doubt = await members_in_doubt(client, plan)
            for name, node in leaders.items():
                if name not in waiting:
                    continue
                if name in in_doubt:
                    if trio.current_time() < patience_over_at:
                        continue
                    say(f"{name}: {', '.join(in_doubt[name])} neither votes nor counts yet")
                group = waiting.pop(name)
                _say_leads(plan, group, node.name, node.client_address, is_last=not waiting)


def _say_leads(
    plan: ClusterPlan, group: GroupPlan, node: str, address: str, *, is_last: bool
) -> None:
    place = address if group.address is None else f"{address}, for all {group.address}"
    leads = f"{node} leads {group.name} at {place}"
    proxy = "" if plan.grpc is None else f"; gRPC at {plan.grpc}"
    say(f"ready: {leads}; name server {plan.nameserver}{proxy}" if is_last else leads)
