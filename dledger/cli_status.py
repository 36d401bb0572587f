"""`dledger status`: a group at one moment, or watched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import trio
from rich.box import SIMPLE
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dledger.cli_group import group_options, members_of
from dledger.client import GroupClient, GroupUnreachable
from dledger.errors import DLedgerError
from dledger.group_alarms import Severity, group_alarms, leader_of, sync_average_s

# One that is frozen must not hold up what the others say.
_ANSWER_S = 2.0

_COLUMNS = ("term", "last", "committed", "applied", "lag", "sync", "contact", "snapshot", "disk")
_WORDS = ("node", "address", "role")
_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow"}

Statuses = dict[str, dict[str, Any]]


class _Syncs(NamedTuple):
    """Counts of one member at an earlier look."""

    syncs: int
    seconds: float


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
    client = GroupClient(name, known)
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
        console = Console()
        console.print(_picture(name, known, found, {}))
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

    async with trio.open_nursery() as nursery:
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
    console = Console()
    earlier: dict[str, _Syncs] = {}
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
                live.update(_picture(name, known, found, earlier), refresh=True)
            else:
                live.stop()
                console.print(_picture(name, known, found, earlier))
            earlier = {node: _syncs(said) for node, said in found.items() if "syncs" in said}
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


def _syncs(said: Mapping[str, Any]) -> _Syncs:
    return _Syncs(int(said["syncs"]), float(said["sync_seconds"]))


def _picture(
    name: str, known: Mapping[str, str], found: Statuses, earlier: Mapping[str, _Syncs]
) -> Group:
    """Alarms first, then the members."""
    parts: list[Text | Table] = []
    for alarm in group_alarms(found):
        text = f"{alarm.severity.name}  {alarm.text}"
        parts.append(Text(text, style=_STYLES[alarm.severity], overflow="fold"))
    leader = leader_of(found)
    title = f"group {name}"
    if leader is not None and leader[1].get("generation"):
        title += f", generation {leader[1]['generation']}"
    table = Table(title=title, box=SIMPLE)
    for column in (*_WORDS, *_COLUMNS):
        table.add_column(column, justify="left" if column in _WORDS else "right", no_wrap=True)
    last = int(leader[1]["last_index"]) if leader is not None else None
    for node_id, said in found.items():
        address = known.get(node_id, "")
        if "problem" in said:
            table.add_row(node_id, address, Text("unreachable", style="red"), *[""] * len(_COLUMNS))
        else:
            table.add_row(node_id, address, *_row(said, last, earlier.get(node_id)))
    parts.append(table)
    return Group(*parts)


def _row(said: Mapping[str, Any], last: int | None, earlier: _Syncs | None) -> list[str | Text]:
    doubt = "" if said["proven"] else " (unproven)"
    role = f"{said['role']}{' (ready)' if said['ready'] else doubt}"
    leads = said["role"] == "leader"
    lag = "" if last is None or leads else str(max(0, last - int(said["last_index"])))
    snapshot = said.get("newest_snapshot", -1)
    installing = said.get("installing")
    if isinstance(installing, Mapping):
        percent = 100 * installing["bytes_received"] // max(1, installing["bytes_total"])
        written = f"{percent} %"
    else:
        written = "" if snapshot == -1 else str(snapshot)
    return [
        Text(role, style="bold green" if leads else ""),
        str(said["term"]),
        str(said["last_index"]),
        str(said["committed"]),
        str(said["applied"]),
        lag,
        _sync_time(said, earlier),
        _contact(said),
        written,
        _disk(said),
    ]


def _sync_time(said: Mapping[str, Any], earlier: _Syncs | None) -> str:
    """Of the syncs since the last look; of all, if there were none."""
    average = sync_average_s(said)
    if earlier is not None and "syncs" in said:
        syncs, seconds = _syncs(said)
        if syncs > earlier.syncs:
            average = (seconds - earlier.seconds) / (syncs - earlier.syncs)
    return "" if average is None else f"{average * 1000:.2f} ms"


def _contact(said: Mapping[str, Any]) -> str:
    """Since this member heard its leader; of a leader, since a quorum with it has answered."""
    contact = said.get("leader_contact_s")
    if said["role"] == "leader":
        peers = said.get("peers") or {}
        answered = sorted(
            seen["answered_s"] for seen in peers.values() if seen.get("answered_s") is not None
        )
        voters = (said.get("members") or {}).get("voters") or []
        needed = len(voters) // 2
        contact = answered[needed - 1] if 0 < needed <= len(answered) else None
    return "" if contact is None else f"{contact:.1f} s"


def _disk(said: Mapping[str, Any]) -> str:
    total = int(said.get("disk_total_bytes", 0))
    if not total:
        return ""
    used = 1 - int(said["disk_free_bytes"]) / total
    return f"{_bytes(int(said['log_bytes']))}, {used:.0%} full"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
