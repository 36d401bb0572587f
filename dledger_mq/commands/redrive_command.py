"""`dledger-mq redrive`: redeliver dead letters."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import click

from dledger.command_line.options import flag, json_option, option
from dledger.command_line.standard_streams import telling_what_is_done
from dledger_mq.admin.dead_letters import LAST_MS, Redriven
from dledger_mq.commands.command_line import change, nameserver_option

_TIME = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])


@click.command("redrive")
@click.argument("group")
@option(
    "--to",
    "target",
    "To the group alone, or to the topics that they were sent to, for all groups there.",
    type=click.Choice(("group", "topic")),
    default="group",
)
@option("--id", "ids", "Only this message; repeat it.", multiple=True, metavar="ID")
@option("--since", "Only those that died at this time (UTC) or later.", type=_TIME)
@option("--until", "Only those that died at this time (UTC) or before.", type=_TIME)
@option("--most", "No more than so many, the oldest first.", type=click.IntRange(1))
@flag("--dry-run", "Only count.")
@json_option("Print the counts as a JSON object.")
@nameserver_option
def redrive(
    group: str,
    target: str,
    ids: Sequence[str],
    since: datetime | None,
    until: datetime | None,
    most: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Deliver the dead letters of GROUP once more, each once.

    What was delivered once more before is passed over, so that the command may be repeated. To see
    the dead letters: dledger-mq consume %DLQ%GROUP --from-first.
    """
    total = change(
        lambda admin: admin.redrive(
            group,
            to_topic=target == "topic",
            ids=ids,
            begin_ms=0 if since is None else _in_ms(since),
            end_ms=LAST_MS if until is None else _in_ms(until),
            most=most,
            dry_run=dry_run,
            on_progress=_show,
        )
    )
    would = "would be" if dry_run else "were"
    delivered = f"{total.redriven} dead letters of {group} {would} delivered once more"
    with telling_what_is_done(delivered):
        if as_json:
            click.echo(json.dumps(asdict(total)))
            return
        click.echo(
            f"{delivered}; {total.taken} were before, {total.passed_over} were not asked for, "
            f"{total.without_topic} have no topic to go to"
        )
        if total.never_stored:
            click.echo(
                f"{total.never_stored} are too large for the log now, or cannot be read: they stay"
            )


def _in_ms(time: datetime) -> int:
    return round(time.replace(tzinfo=UTC).timestamp() * 1000)


def _show(progress: Redriven) -> None:
    if sys.stderr.isatty():
        counts = f"{progress.redriven} delivered, {progress.left} to look at"
        click.echo(f"{counts}\r", nl=False, err=True)
