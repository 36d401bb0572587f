"""`dledger status`: a group at one moment, or watched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import trio

from dledger.client.group_client import GroupClient, GroupUnreachable
from dledger.commands.group_alarms import leader_of
from dledger.commands.group_options import group_options, members_of
from dledger.commands.tls_options import given_tls
from dledger.errors import DLedgerError
from dledger.unwrapping_nursery import unwrapping_nursery

# One that is frozen must not hold up what the others say.
_ANSWER_S = 2.0

Statuses = dict[str, dict[str, Any]]


@click.command()
@group_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object with every node.")
@click.option("--watch", "-w", is_flag=True, help="Go on, until Ctrl-C.")
@click.option(
    "--interval",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.1),
    help="Seconds between two looks.",
)
@click.option("--count", type=click.IntRange(1), help="End after so many looks.")
def status(
    folder: Path | None,
    peers: str | None,
    group: str,
    as_json: bool,
    watch: bool,
    interval: float,
    count: int | None,
) -> None:
    """Show what is wrong with a group, and every member: role, term, how far its log is.

    `lag` is what a member lacks of the leader's log; `sync` the average time of a sync to its disk
    (while watching: since the last look); `contact` since it heard the leader, or, of the leader,
    since the slowest quorum answered it. Exit code 1 if no member leads.
    """
    name, known = members_of(folder, peers, group)
    client = GroupClient(name, known, given_tls())
    if watch:
        try:
            trio.run(_watch, name, client, dict(known), interval, count, as_json)
        except KeyboardInterrupt:
            return
        return
    found = trio.run(statuses_of, client, dict(known))
    if as_json:
        click.echo(json.dumps(found))
    else:
        # Not above: a member that starts draws nothing, and loading what draws takes a while.
        from dledger.commands.status_picture import group_picture
        from dledger.commands.tables import table_console

        console = table_console()
        console.print(group_picture(name, known, found, {}, console))
    if not as_json and not any(said.get("ready") for said in found.values()):
        raise GroupUnreachable("no member leads")


async def statuses_of(client: GroupClient, known: Mapping[str, str]) -> Statuses:
    """What each of these members says of itself, or why it says nothing; all asked at once."""
    found: Statuses = {node_id: {} for node_id in known}

    async def ask(node_id: str) -> None:
        found[node_id] = {"problem": f"no answer within {_ANSWER_S:g} s"}
        with trio.move_on_after(_ANSWER_S):
            try:
                found[node_id] = await client.status(node_id)
            except GroupUnreachable as error:
                found[node_id] = {"problem": error.problem}
            except (DLedgerError, OSError, trio.BrokenResourceError) as error:
                found[node_id] = {"problem": str(error) or type(error).__name__}

    async with unwrapping_nursery() as nursery:  # Ctrl-C comes out as itself
        for node_id in known:
            nursery.start_soon(ask, node_id)
    return found


async def _watch(
    name: str,
    client: GroupClient,
    known: dict[str, str],
    interval: float,
    count: int | None,
    as_json: bool,
) -> None:
    """Look again and again: drawn over in a terminal, one after the other in a pipe."""
    from rich.live import Live

    from dledger.commands.status_picture import Syncs, group_picture, syncs_of
    from dledger.commands.tables import table_console

    console = table_console()
    earlier: dict[str, Syncs] = {}
    looks = 0
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while count is None or looks < count:
            due = trio.current_time() + interval
            found = await statuses_of(client, known)
            _learn(known, found)
            if as_json:
                live.stop()
                click.echo(json.dumps(found))
            elif console.is_terminal:
                live.update(group_picture(name, known, found, earlier, console), refresh=True)
            else:
                live.stop()
                console.print(group_picture(name, known, found, earlier, console))
            earlier = {node: syncs_of(said) for node, said in found.items() if "syncs" in said}
            looks += 1
            if count is None or looks < count:
                await trio.sleep_until(due)


def _learn(known: dict[str, str], found: Statuses) -> None:
    """Go on with whoever belongs to the group now, as its leader says."""
    leader = leader_of(found)
    if leader is not None and isinstance(members := leader[1].get("members"), dict):
        addresses = members.get("addresses")
        if isinstance(addresses, dict) and addresses:
            known.clear()
            known.update({str(node): str(address) for node, address in addresses.items()})
