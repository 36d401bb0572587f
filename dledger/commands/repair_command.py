"""`dledger repair`: repairs the folder of a stopped node."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dledger.store.repair import Repaired, repair_folder

_UNCERTAIN = (
    "the damage reached the end of the log: entries that only this node and failed ones held may "
    "be gone; it will not vote or count until it has caught up with a leader of the others"
)


@click.command()
@click.option(
    "--from",
    "source",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of an intact member of the group, or a copy of it.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object with what was replaced.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def repair(folder: Path, source: Path, as_json: bool) -> None:
    """Replace the broken entries of the log in FOLDER by those of another member.

    The node of FOLDER must be stopped. Only broken entries are written, and only if the sums prove
    that both logs have the same history there. Then `dledger verify FOLDER` should find no problem,
    and the node can start.
    """
    repaired = repair_folder(str(folder), str(source))
    if as_json:
        click.echo(json.dumps({"repaired": [stretch._asdict() for stretch in repaired]}))
    elif repaired:
        _print_repaired(repaired)
        if not all(stretch.certain for stretch in repaired):
            click.echo(_UNCERTAIN, err=True)
    else:
        click.echo("nothing was broken")


def _print_repaired(repaired: list[Repaired]) -> None:
    # Imported late: a starting member draws no table, and the import takes a while.
    from rich.table import Table

    from dledger.commands.tables import table_console

    table = Table()
    for column in ("file", "at byte", "bytes", "first entry", "last entry"):
        table.add_column(column, justify="left" if column == "file" else "right", no_wrap=True)
    for stretch in repaired:
        numbers = (stretch.offset, stretch.size, stretch.first_index, stretch.last_index)
        table.add_row(Path(stretch.path).name, *map(str, numbers))
    table_console().print(table)
