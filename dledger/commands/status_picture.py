"""Draws the status of a group: the alarms first, then every member.

A terminal without room for all columns gets the important ones, and a line that names the others:
a squeezed table is unreadable.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from rich.box import SIMPLE
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from dledger.command_line.rows import fits
from dledger.commands.group_alarms import Said, Severity, group_alarms, leader_of, sync_average_s
from dledger.shown_output import escaped

_COLUMNS = ("term", "last", "committed", "applied", "lag", "sync", "contact", "snapshot", "disk")
_WORDS = ("node", "address", "role")
_DISPENSABLE = ("snapshot", "disk", "contact", "address", "sync", "applied", "last")  # in turn
_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow"}


class Syncs(NamedTuple):
    """The counts of one member's syncs when it was asked before."""

    syncs: int
    took_s: float


def syncs_of(said: Mapping[str, Any]) -> Syncs:
    return Syncs(int(said["syncs"]), float(said["sync_seconds"]))


def group_picture(
    name: str,
    known: Mapping[str, str],
    found: Mapping[str, Said],
    earlier: Mapping[str, Syncs],
    console: Console,
    notes: Sequence[str] = (),
) -> Group:
    """Draw the alarms, the members with the columns that fit on the console, and the notes."""
    parts: list[Text | Table] = []
    if console.is_terminal:
        found = {escaped(node_id): _escaped(said) for node_id, said in found.items()}
        known = _escaped(known)
    for alarm in group_alarms(found):
        text = f"{alarm.severity.name}  {alarm.text}"
        parts.append(Text(text, style=_STYLES[alarm.severity], overflow="fold"))
    leader = leader_of(found)
    title = f"group {name}"
    if leader is not None and leader[1].get("generation"):
        title += f", generation {leader[1]['generation']}"
    last = int(leader[1]["last_index"]) if leader is not None else None
    rows: list[list[str | Text]] = []
    for node_id, said in found.items():
        row: list[str | Text] = [node_id, known.get(node_id, "")]
        if "problem" in said:
            row += [Text("unreachable", style="red"), *[""] * len(_COLUMNS)]
        else:
            row += _row(said, last, earlier.get(node_id))
        rows.append(row)
    for left_out in range(len(_DISPENSABLE) + 1):
        table = _table(title, rows, _DISPENSABLE[:left_out])
        if fits(table, console):
            break
    parts.append(table)
    if left_out:
        names = ", ".join(reversed(_DISPENSABLE[:left_out]))
        parts.append(Text(f"  no room for {names}: --json has all", style="dim"))
    parts += [Text(f"  {note}", style="dim", overflow="fold") for note in notes]
    return Group(*parts)


def _table(title: str, rows: list[list[str | Text]], without: Container[str]) -> Table:
    table = Table(title=title, box=SIMPLE)
    names = (*_WORDS, *_COLUMNS)
    for name in names:
        if name not in without:
            table.add_column(name, justify="left" if name in _WORDS else "right", no_wrap=True)
    for row in rows:
        cells = [each for each in zip(names, row, strict=True) if each[0] not in without]
        # Text, because rich would read the brackets of an IPv6 address as marks of styles.
        shown = [Text(cell) if isinstance(cell, str) else cell for _, cell in cells]
        table.add_row(*shown)
    return table


def _escaped(said: Any) -> Any:
    """Return what a member said, with its texts escaped: nothing of it commands the terminal."""
    match said:
        case str():
            return escaped(said)
        case Mapping():
            return {key: _escaped(value) for key, value in said.items()}
        case list():
            return [_escaped(value) for value in said]
        case _:
            return said


def _row(said: Mapping[str, Any], last: int | None, earlier: Syncs | None) -> list[str | Text]:
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


def _sync_time(said: Mapping[str, Any], earlier: Syncs | None) -> str:
    """Format the average time of the syncs since the last look; of all syncs if there were none."""
    average = sync_average_s(said)
    if earlier is not None and "syncs" in said:
        syncs, took_s = syncs_of(said)
        if syncs > earlier.syncs:
            average = (took_s - earlier.took_s) / (syncs - earlier.syncs)
    return "" if average is None else f"{average * 1000:.2f} ms"


def _contact(said: Mapping[str, Any]) -> str:
    """Format the time since this member heard its leader; for a leader, since a quorum answered."""
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
