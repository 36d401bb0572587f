"""`dledger status`: shows a group once or repeatedly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
import trio

from dledger.client.group_client import GroupClient, GroupUnreachable
from dledger.command_line.options import NumberRange, flag, json_option, option
from dledger.command_line.rows import table_console
from dledger.commands.group_options import NamedGroup, given_group, group_options
from dledger.errors import DLedgerError
from dledger.unwrapping_nursery import unwrapping_nursery

# The limit for a frozen member, which must not delay the answers of the others.
_ANSWER_S = 2.0
# One round for the given members, one for those that they name, one for a change meanwhile.
_MOST_ROUNDS = 3

Statuses = dict[str, dict[str, Any]]


@click.command()
@group_options
@json_option("One JSON object with every node.")
@flag("--watch", "-w", "Go on, until Ctrl-C.")
@option(
    "--interval",
    "interval_s",
    "NumberRange between two looks.",
    default=1.0,
    type=NumberRange(0.1),
)
@option("--count", "End after so many looks.", type=click.IntRange(1))
def status(
    as_json: bool,
    watch: bool,
    interval_s: float,
    count: int | None,
) -> None:
    """Show the alarms of a group, and every member: its role, its term, its log.

    \b
      dledger status --dir /tmp/log --watch
      dledger status --peers n0=10.0.0.1:20911 --json

    `lag` is what a member lacks of the leader's log; `sync` the average time of a sync to its disk
    (while watching: since the last look); `contact` the time since it heard the leader, or, for the
    leader, since the slowest quorum answered it. The group names its members; the given list only
    says where to ask. Exit code 1 if no member leads.
    """  # noqa: D301 - click's mark, a backspace
    group = given_group()
    client = group.client()
    if watch:
        with suppress(KeyboardInterrupt):
            trio.run(_watch, group, client, interval_s, count, as_json)
        return
    found = trio.run(member_statuses, client, group.members)
    notes = member_notes(client, group.members)
    if as_json:
        _print_json(found, notes)
    else:
        # Imported late: a starting member draws nothing, and the import takes a while.
        from dledger.commands.status_picture import group_picture

        console = table_console()
        console.print(group_picture(group.name, client.members, found, {}, console, notes))
    if not as_json and not any(said.get("ready") for said in found.values()):
        raise GroupUnreachable("no member leads")


def _print_json(found: Statuses, notes: Sequence[str]) -> None:
    for note in notes:
        click.echo(note, err=True)
    click.echo(json.dumps(found))


async def member_statuses(client: GroupClient, given: Mapping[str, str]) -> Statuses:
    """Return the status of each member, or the reason why it did not answer.

    Asks the known members at once, and then the members that they name: the group decides its
    members, and the given list may be older. Given nodes that are no longer members are shown if
    they answer: they run, and may not know of their removal yet.
    """
    asked: dict[tuple[str, str], dict[str, Any]] = {}
    for _ in range(_MOST_ROUNDS):
        wanted = {**given, **client.members}
        new = [member for member in wanted.items() if member not in asked]
        if not new:
            break
        async with unwrapping_nursery() as nursery:  # raises Ctrl-C as a plain KeyboardInterrupt
            for member in new:
                asked[member] = {"problem": f"no answer within {_ANSWER_S:g} s"}
                nursery.start_soon(_ask, client, member, asked)
    members = client.members
    found = {each[0]: asked.get(each, {"problem": "not asked"}) for each in members.items()}
    strangers = {
        node_id: said
        for (node_id, _), said in asked.items()
        if node_id not in members and "problem" not in said
    }
    return {**found, **strangers}


async def _ask(
    client: GroupClient, member: tuple[str, str], asked: dict[tuple[str, str], dict[str, Any]]
) -> None:
    with trio.move_on_after(_ANSWER_S):
        try:
            asked[member] = await client.status(member[0])
        except GroupUnreachable as error:
            asked[member] = {"problem": error.problem}
        except (DLedgerError, OSError, trio.BrokenResourceError) as error:
            asked[member] = {"problem": str(error) or type(error).__name__}


def member_notes(client: GroupClient, given: Mapping[str, str]) -> list[str]:
    """Return notes for the operator about the source of the shown members."""
    if not client.members_are_told:
        return ["no member answers: these are the members as given, the group may have others"]
    members = client.members
    gone = [node_id for node_id in given if node_id not in members]
    if not gone:
        return []
    verb = "are" if len(gone) > 1 else "is"
    return [f"{', '.join(gone)} {verb} in the list that was given, and no member of the group"]


async def _watch(
    group: NamedGroup,
    client: GroupClient,
    interval_s: float,
    count: int | None,
    as_json: bool,
) -> None:
    """Show the group repeatedly: in place in a terminal, one picture after the other in a pipe."""
    from rich.live import Live

    from dledger.commands.status_picture import Syncs, group_picture, syncs_of

    console = table_console()
    earlier: dict[str, Syncs] = {}
    looks = 0
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while count is None or looks < count:
            due = trio.current_time() + interval_s
            found = await member_statuses(client, group.members)
            notes = member_notes(client, group.members)
            if as_json:
                live.stop()
                _print_json(found, notes)
            else:
                picture = group_picture(group.name, client.members, found, earlier, console, notes)
                if console.is_terminal:
                    live.update(picture, refresh=True)
                else:
                    live.stop()
                    console.print(picture)
            earlier = {node: syncs_of(said) for node, said in found.items() if "syncs" in said}
            looks += 1
            if count is None or looks < count:
                await trio.sleep_until(due)
