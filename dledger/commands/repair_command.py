"""`dledger repair` and `dledger rejoin`: mend the folder of a stopped node."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dledger.command_line.options import EXISTING_FOLDER, json_option, option
from dledger.command_line.rows import new_table, table_console
from dledger.command_line.standard_streams import telling_what_is_done
from dledger.store.repair import Repaired, repair_folder
from dledger.store.set_aside import set_aside

_UNCERTAIN = (
    "the damage reached the end of the log: entries that only this node and failed ones held may "
    "be gone; it will not vote or count until it has caught up with a leader of the others"
)


@click.command()
@option(
    "--from",
    "source",
    "The folder of an intact member of the group, or a copy of it.",
    required=True,
    type=EXISTING_FOLDER,
)
@json_option("One JSON object with what was replaced.")
@click.argument("folder", type=EXISTING_FOLDER)
def repair(folder: Path, source: Path, as_json: bool) -> None:
    """Replace the broken entries of the log in FOLDER by those of another member.

    \b
      dledger repair /var/lib/log/dledger-n1 --from /mnt/copy/dledger-n0
      dledger verify /var/lib/log/dledger-n1

    The node of FOLDER must be stopped. Only broken entries are written, and only if the sums prove
    that both logs have the same history there. Then `dledger verify FOLDER` should find no problem,
    and the node can start.
    """  # noqa: D301 - click's mark, a backspace
    repaired = repair_folder(str(folder), str(source))
    with telling_what_is_done(f"{folder} is repaired"):
        if as_json:
            click.echo(json.dumps({"repaired": [stretch._asdict() for stretch in repaired]}))
        elif repaired:
            _print_repaired(repaired)
            if not all(stretch.certain for stretch in repaired):
                click.echo(_UNCERTAIN, err=True)
        else:
            click.echo("nothing was broken")


def _print_repaired(repaired: list[Repaired]) -> None:
    columns = ("file", "at byte", "bytes", "first entry", "last entry")
    rows = [
        (Path(one.path).name, one.offset, one.size, one.first_index, one.last_index)
        for one in repaired
    ]
    table_console().print(new_table(columns, rows, words=("file",)))


@click.command()
@click.argument("folder", type=EXISTING_FOLDER)
def rejoin(folder: Path) -> None:
    """Let the member of FOLDER come back with an empty log.

    \b
      dledger rejoin /var/lib/log/dledger-n1

    For a member that refuses to start because committed entries or its term and vote are lost, or
    whose folder was restored from an older copy. Nothing is deleted: its files are moved into a
    folder beside them. Started again, it neither votes nor counts until it holds the log of a
    leader that the other members elected without it. The node must be stopped.

    Do not use it on half of a group or more: entries that only those members held would be lost.
    """  # noqa: D301 - click's mark, a backspace
    aside = set_aside(str(folder))
    moved = f"moved everything to {aside}"
    with telling_what_is_done(moved):
        click.echo(moved)
        click.echo("start the node: it catches up from the leader, and counts when it has done so")
