"""`dledger-mq up`: a whole group on this machine."""

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
import trio

from dledger.free_ports import free_addresses
from dledger_mq import requests
from dledger_mq.admin import Admin
from dledger_mq.client import Client
from dledger_mq.command_line import DEFAULT_NAMESERVER, run, say
from dledger_mq.errors import GroupDirectoryError, MessagingError
from dledger_mq.group_directory import MAX_NODES, GroupDirectory, GroupPlan, NodePlan
from dledger_mq.local_group import LocalGroup
from remoting.wire.codes import ResponseCode
from remoting.wire.errors import RemotingError

CLUSTER: Final = "DefaultCluster"
GROUP: Final = "broker-a"

# Whether several processes can listen on one port, among which the system spreads connections.
_SHARES_PORTS: Final = sys.platform.startswith("linux")

# How often the name server is asked for the leader.
_LOOK_SECONDS: Final = 0.2


@click.command("up")
@click.option(
    "--nodes",
    "node_count",
    type=click.IntRange(1, MAX_NODES),
    help="How many brokers, 3 for a new directory; a directory keeps its number.",
)
@click.option(
    "--dir",
    "path",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where everything is kept.",
)
@click.option(
    "--nameserver",
    help=f"Where the name server listens, {DEFAULT_NAMESERVER} for a new directory.",
)
@click.option(
    "--restart-after",
    "restart_after_seconds",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Start what died again after so long; by default it stays dead.",
)
def up(
    node_count: int | None,
    path: Path,
    nameserver: str | None,
    restart_after_seconds: float | None,
) -> None:
    """Run a name server and a group of brokers until Ctrl-C.

    Prints a line that begins with "ready" once a leader serves.
    """
    directory = GroupDirectory(path)

    async def task() -> None:
        directory.lock()
        try:
            plan = _plan(directory, node_count, nameserver)
            await _run(LocalGroup(directory, plan, say, restart_after_seconds), plan)
        finally:
            directory.unlock()

    run(task)


def _plan(directory: GroupDirectory, node_count: int | None, nameserver: str | None) -> GroupPlan:
    """The directory's group, or a new one.

    Raises:
        GroupDirectoryError: the directory has a group of another size, or cannot be read.
    """
    plan = directory.read_plan()
    if plan is None:
        count = node_count or 3
        *addresses, group_address = free_addresses(2 * count + 1)
        nodes = tuple(
            NodePlan(f"n{number}", addresses[2 * number], addresses[2 * number + 1])
            for number in range(count)
        )
        at = group_address if count > 1 and _SHARES_PORTS else None
        return GroupPlan(CLUSTER, GROUP, nameserver or DEFAULT_NAMESERVER, nodes, at)
    if node_count not in (None, len(plan.nodes)):
        raise GroupDirectoryError(
            str(directory.path),
            f"its group has {len(plan.nodes)} nodes, not {node_count}; leave --nodes out, "
            "or choose another directory",
        )
    return replace(plan, nameserver=nameserver or plan.nameserver)


async def _run(group: LocalGroup, plan: GroupPlan) -> None:
    """Start everything, and end it at a signal."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def start() -> None:
                for program in group.programs():
                    await nursery.start(group.keep_running, program)
                await _say_ready(plan)

            nursery.start_soon(start)
            async for number in signals:
                say(f"stopping ({signal.Signals(number).name})")
                break
            nursery.cancel_scope.cancel()
    say("stopped")


async def _say_ready(plan: GroupPlan) -> None:
    """Say so once the name server names a leader and the leader answers a request."""
    names = {node.client_address: node.name for node in plan.nodes}
    async with Client([plan.nameserver]) as client, Admin(client=client) as admin:
        while True:
            await trio.sleep(_LOOK_SECONDS)
            try:
                for broker in await admin.brokers():
                    address = broker.leader
                    if address in names:
                        reply = await client.remoting.request(address, requests.runtime_info())
                        if reply.code == ResponseCode.SUCCESS:
                            for_all = plan.group_address
                            place = address if for_all is None else f"{address}, for all {for_all}"
                            say(
                                f"ready: {names[address]} leads {plan.group} at {place}; "
                                f"name server {plan.nameserver}"
                            )
                            return
            except (MessagingError, RemotingError):
                # No broker leads yet; the brokers' own lines show the progress.
                continue
