"""`dledger backup` and `dledger restore`."""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict
from pathlib import Path

import click

from dledger.command_line.options import EXISTING_FOLDER, FOLDER, json_option
from dledger.commands.recover_command import (
    check_no_member_runs,
    drawn_mark,
    known_members,
    own_address,
    print_done,
    without_check,
)
from dledger.rescue.backup import back_up
from dledger.rescue.group_recovery import recover_group
from dledger.rescue.survivor import look_at


@click.command()
@click.option(
    "--to",
    "target",
    required=True,
    type=FOLDER,
    help="The copy is a folder dledger-<id> in this one.",
)
@json_option("One JSON object.")
@click.argument("folder", type=EXISTING_FOLDER)
def backup(folder: Path, target: Path, as_json: bool) -> None:
    """Copy the member in FOLDER, running or not: its newest snapshot and the committed log.

    The copy holds the entries that the member recorded as committed, at most a second behind, and
    nothing else. All sums are checked, in FOLDER and in the copy. One member's copy is enough; take
    one that `dledger status` shows without a lag.
    """
    made = back_up(str(folder), str(target))
    if as_json:
        click.echo(json.dumps(asdict(made)))
    else:
        click.echo(
            f"{made.folder}: group {made.group}, entries {made.first_index}..{made.last_index}, "
            f"{made.size} bytes"
        )


@click.command()
@click.option(
    "--dir",
    "target",
    required=True,
    type=FOLDER,
    help="Where the member's data goes: the --dir of its `dledger serve`.",
)
@click.option("--node", "node_id", help="Its name, if not that of the member that was copied.")
@click.option("--address", metavar="HOST:PORT", help="Where it will listen, if elsewhere.")
@click.option("--peers", help="All members, as n0=127.0.0.1:20911,... if the copy names none.")
@without_check
@json_option("One JSON object.")
@click.argument("copy", type=EXISTING_FOLDER)
def restore(
    copy: Path,
    target: Path,
    node_id: str | None,
    address: str | None,
    peers: str | None,
    unchecked: bool,
    as_json: bool,
) -> None:
    """Begin a group again from COPY, which `dledger backup` made.

    COPY stays as it is. The group keeps its name and is in a new generation, as after `dledger
    recover`: its member is the only voter, others join, and old members are refused. Entries that
    the group committed after the copy was made are not in it.
    """
    survivor = look_at(str(copy))
    members = known_members(survivor, peers)
    name = node_id or survivor.node_id
    own = own_address(survivor, name, members, address, unchecked=unchecked)
    if not unchecked:
        check_no_member_runs(survivor, {**members, name: own})
    made = back_up(str(copy), str(target), node_id)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    done = recover_group(made.folder, made.last_index, own, mark=drawn_mark(), when=now)
    print_done(done, as_json)
