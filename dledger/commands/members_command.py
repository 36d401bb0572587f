"""`dledger members`: shows the members of a group, and changes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import click
import trio

from dledger.client.group_client import GroupClient
from dledger.command_line.options import INDEX, TIMEOUT, flag, json_option, option
from dledger.command_line.rows import new_table, table_console
from dledger.command_line.standard_streams import telling_what_is_done
from dledger.commands.group_options import given_group, group_options
from dledger.config import parse_peers, parse_reached_address
from dledger.core.membership.configuration_change import (
    AddLearner,
    AddVoter,
    Change,
    Demote,
    Promote,
    Remove,
    Transition,
    UpdateAddress,
)
from dledger.errors import ConfigInvalid, DLedgerError

Parsed = Sequence[str]

# -1 is the configuration that the group began with.
EXPECTED = click.IntRange(-1, INDEX.max)


def _with_address(kind: Callable[[str, str], Change], option: str, texts: Parsed) -> list[Change]:
    changes = []
    for text in texts:
        for member, address in parse_peers(option, text).items():
            changes.append(kind(member, str(parse_reached_address(f"{option} {member}", address))))
    return changes


@click.command()
@group_options
@option("--add", "Add a voter.", multiple=True, metavar="ID=HOST:PORT")
@option("--learner", "Add a learner.", multiple=True, metavar="ID=HOST:PORT")
@option("--promote", "Make a learner a voter.", multiple=True, metavar="ID")
@option("--demote", "Make a voter a learner.", multiple=True, metavar="ID")
@option("--remove", "Remove a member.", multiple=True, metavar="ID")
@option("--move", "Change a member's address.", multiple=True, metavar="ID=HOST:PORT")
@flag("--joint", "Use a joint phase even for one voter.")
@option("--expected", "Only if this configuration is in force.", type=EXPECTED)
@option("--timeout", "timeout_s", "Seconds to wait for a leader.", default=10.0, type=TIMEOUT)
@json_option("One JSON object.")
def members(
    add: Parsed,
    learner: Parsed,
    promote: Parsed,
    demote: Parsed,
    remove: Parsed,
    move: Parsed,
    joint: bool,
    expected: int | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Show the members of a group, or change them: all the options make one change.

    \b
      dledger members --dir /tmp/log
      dledger members --peers n0=10.0.0.1:20911 --add n3=10.0.0.4:20911 --remove n2
      dledger members --peers n0=10.0.0.1:20911 --learner n4=10.0.0.5:20911

    A node to be added must run, with `dledger serve --join`; it gets the log first, which may take
    a while. A node that was removed may be stopped when the command returns.
    """  # noqa: D301 - click's mark, a backspace
    changes: list[Change] = [
        *_with_address(AddVoter, "--add", add),
        *_with_address(AddLearner, "--learner", learner),
        *map(Promote, promote),
        *map(Demote, demote),
        *map(Remove, remove),
        *_with_address(UpdateAddress, "--move", move),
    ]
    if expected is not None and not changes:
        raise ConfigInvalid("--expected", "there is nothing to change")
    group = given_group()
    client = group.client()
    if changes:
        transition = Transition.JOINT if joint else Transition.AUTO
        trio.run(client.change, changes, transition, expected, timeout_s)
        with telling_what_is_done("the members are changed", expected=(DLedgerError,)):
            _show(group.name, client, timeout_s, as_json)
    else:
        _show(group.name, client, timeout_s, as_json)


def _show(group: str, client: GroupClient, timeout_s: float, as_json: bool) -> None:
    status = trio.run(client.leader_status, timeout_s)
    found = status["members"]
    if not isinstance(found, dict):
        raise ConfigInvalid("--peers", "the leader does not name its members: is it older?")
    if as_json:
        click.echo(json.dumps(found))
        return
    print_members(group, str(status["node_id"]), found)


def print_members(group: str, leader: str, found: dict[str, object]) -> None:
    addresses, learners = found["addresses"], found["learners"]
    voters, outgoing = found["voters"], found["outgoing"]
    if not isinstance(addresses, dict) or not isinstance(learners, dict):
        raise ConfigInvalid("--peers", "the leader's answer has another shape: is it older?")
    if not isinstance(voters, list) or not isinstance(outgoing, list):
        raise ConfigInvalid("--peers", "the leader's answer has another shape: is it older?")
    columns = ("node", "address", "votes", "lacks", "")
    rows = []
    for node_id, address in addresses.items():
        learner = learners.get(node_id) or {}
        halves = [half for half, ids in (("yes", voters), ("before", outgoing)) if node_id in ids]
        lag = learner.get("lag_entries")
        what = "leads" if node_id == leader else learner.get("verdict") or ""
        lacks = "" if lag is None else lag
        rows.append((node_id, address, " and ".join(halves) or "learner", lacks, what))
    title = f"group {group}, configuration {found['index']}"
    words = {*columns} - {"lacks"}
    table = new_table(columns, rows, words, title=title, box="SIMPLE", no_wrap=False)
    table_console().print(table)
