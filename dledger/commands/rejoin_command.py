"""`dledger rejoin`: empties the folder of a member that lost entries or votes."""

from __future__ import annotations

from pathlib import Path

import click

from dledger.store.set_aside import set_aside


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def rejoin(folder: Path) -> None:
    """Let the member of FOLDER come back with an empty log, and catch up before it counts.

    For a member that refuses to start because committed entries or its term and vote are lost, or
    whose folder was restored from an older copy. Nothing is deleted: its files are moved into a
    folder beside them. Started again, it neither votes nor counts until it holds the log of a
    leader that the other members elected without it. The node must be stopped.

    Do not use it on half of a group or more: entries that only those members held would be lost.
    """
    aside = set_aside(str(folder))
    click.echo(f"moved everything to {aside}")
    click.echo("start the node: it catches up from the leader, and counts when it has done so")
