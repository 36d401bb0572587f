"""`dledger-mq status`, `stats` and `settings`: the brokers' roles, figures and settings."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click
import trio

from dledger.command_line.ending import CommandFailed
from dledger.command_line.options import EXISTING_FOLDER, json_option, option
from dledger.command_line.rows import new_table, say, table_console
from dledger.command_line.standard_streams import telling_what_is_done
from dledger_mq.admin.admin import FIGURES_TIMEOUT_S, Admin
from dledger_mq.clusters.group_directory import GroupDirectory
from dledger_mq.commands.command_line import (
    COMMAND_ERRORS,
    ask,
    change,
    given_credentials,
    given_nameservers,
    given_tls,
    lines_option,
    nameserver_option,
    print_rows,
)
from dledger_mq.connection import requests
from dledger_mq.connection.client import Client
from dledger_mq.errors import GroupDirectoryError, MessagingError, no_broker_leads
from remoting.bodies.table import decode_table
from remoting.message.topic_names import UNDELIVERED_TOPIC
from remoting.wire.command import Command

# The columns of the table, in order: the title, and the broker's name of the figure. A figure that
# a broker does not have is shown as a dash.
_COLUMNS: Final = {
    "role": "dledgerRole",
    "term": "dledgerTerm",
    "committed": "dledgerCommitted",
    "applied": "dledgerApplied",
    "log end": "commitLogMaxOffset",
    "messages": "msgPutTotalTodayNow",
}


@click.command("status")
@option(
    "--dir",
    "path",
    "The directory of `up`: shows its followers and dead nodes, too.",
    type=EXISTING_FOLDER,
)
@json_option("Print JSON.")
@nameserver_option
def status(path: Path | None, as_json: bool) -> None:
    """Show the brokers that the name servers know, or the nodes of a directory.

    Exit code 1 if no broker leads.
    """
    problem = None
    if path is None:
        rows = ask(_of_cluster)
    else:
        rows, problem = trio.run(_of_directory, path)
    _print_status(rows, as_json)
    if problem is not None:
        raise problem
    if as_json:
        return
    if not any(row["leads"] for row in rows):
        plan = None if path is None else GroupDirectory(path).read_plan()
        asked = given_nameservers() if plan is None else [plan.nameserver]
        groups = {str(row["node"]).rpartition(":")[0] for row in rows} - {""}
        raise CommandFailed(no_broker_leads(asked, sorted(groups)))


def _print_status(rows: Sequence[Mapping[str, object]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows))
        return
    # Problems get a line each: a narrow screen has no room for them in the table.
    columns = ("node", "address", *_COLUMNS)
    cells = []
    for row in rows:
        figures = row["figures"]
        shown = figures if isinstance(figures, dict) else {}
        cells.append(
            (row["node"], row["address"], *(shown.get(name, "-") for name in _COLUMNS.values()))
        )
    if rows:
        table = new_table(columns, cells, words=columns, box="SIMPLE_HEAD", padding=0)
        table_console().print(table)
    for row in rows:
        if row["problem"]:
            say(f"{row['node']}: {row['problem']}")
        if row["leads"] and (alarm := _undelivered(row["figures"])):
            say(f"{row['node']}: {alarm}")
    for alarm in _alarms(rows, "dledgerAlarms"):
        say(f"CRITICAL  {alarm}")
    for alarm in _alarms(rows, "dledgerWarnings"):
        say(f"WARNING   {alarm}")


def _undelivered(figures: object) -> str:
    count = figures.get("dledgerUndelivered", "0") if isinstance(figures, dict) else "0"
    if count == "0":
        return ""
    return f"{count} messages could not be delivered: topic {UNDELIVERED_TOPIC} says which"


def _alarms(rows: Sequence[Mapping[str, object]], figure: str) -> list[str]:
    """Return the alarms that members have about themselves and one another, each of them once."""
    alarms = [
        figures.get(figure, "") for row in rows if isinstance(figures := row["figures"], dict)
    ]
    return list(dict.fromkeys(text for texts in alarms for text in texts.splitlines()))


async def _of_cluster(admin: Admin) -> list[dict[str, object]]:
    return [
        {
            "node": f"{one.broker_name}:{one.broker_id}",
            "address": one.address,
            "leads": one.broker_id == 0,
            "figures": one.figures,
            "problem": one.problem,
        }
        for one in await admin.cluster()
    ]


async def _of_directory(path: Path) -> tuple[list[dict[str, object]], MessagingError | None]:
    """Return a row for each node of a directory, and what is wrong with the name server.

    Without it, a node leads that says so itself. Raises GroupDirectoryError: it has no group.
    """
    directory = GroupDirectory(path)
    plan = directory.read_plan()
    if plan is None:
        raise GroupDirectoryError(str(path), "it has no group; start one with dledger-mq up")
    pids = directory.read_pids()
    tls = given_tls() or plan.client_tls
    credentials = given_credentials() or plan.credentials()
    async with (
        Client([plan.nameserver], tls=tls, credentials=credentials) as client,
        Admin(client=client) as admin,
    ):
        leaders: set[str | None] | None = None
        unreachable: MessagingError | None = None
        try:
            leaders = {broker.leader for broker in await admin.brokers()}
        except MessagingError as error:
            unreachable = error
        outcomes = await client.request_all(
            [(node.client_address, requests.runtime_info()) for node in plan.nodes],
            FIGURES_TIMEOUT_S,
        )
    rows: list[dict[str, object]] = []
    for node, outcome in zip(plan.nodes, outcomes, strict=True):
        figures: dict[str, str] = {}
        problem: str | None = ""
        if not isinstance(outcome, Command):
            problem = str(outcome)
        elif outcome.code:
            problem = outcome.remark
        else:
            figures = decode_table(outcome.body)
        rows.append(
            {
                "node": node.name,
                "address": node.client_address,
                "pid": pids.get(node.name),
                "leads": figures.get("dledgerRole") == "leader"
                if leaders is None
                else node.client_address in leaders,
                "figures": figures,
                "problem": problem,
            }
        )
    return rows, unreachable


@click.command("stats")
@click.argument("name")
@click.argument("key")
@lines_option
@nameserver_option
def stats(name: str, key: str, as_json: bool) -> None:
    """Show what brokers have counted under NAME for KEY in the last minute, hour and day.

    \b
    dledger-mq stats TOPIC_PUT_NUMS Orders            messages stored in a topic
    dledger-mq stats GROUP_GET_NUMS Orders@billing    messages given to a group
    dledger-mq stats GROUP_GET_FALL_TIME 0@Orders@billing
                                                      milliseconds it is behind in queue 0
    dledger-mq stats BROKER_PUT_NUMS DefaultCluster   messages stored by each broker

    docs/statistics.md lists all names. The exit code is 1 if nothing was counted.
    """  # noqa: D301 - click's mark, a backspace
    found = ask(lambda admin: admin.statistics(name, key))
    rows = [
        {
            "broker": broker_name,
            "last": window,
            "sum": total["sum"],
            "a second": total["per_second"],
            "average": total["average"],
        }
        for broker_name, statistic in found.items()
        for window, total in asdict(statistic).items()
    ]
    print_rows(("broker", "last", "sum", "a second", "average"), rows, as_json)
    if not found:
        raise CommandFailed(f"no broker has counted {name} for {key}: see docs/statistics.md")


@click.command("settings")
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]...")
@option("--broker", "broker_name", "Only this group of brokers.", default="", show_default=False)
@lines_option
@nameserver_option
def settings(changes: tuple[str, ...], broker_name: str, as_json: bool) -> None:
    """Show the settings of brokers, or change them while they run.

    \b
    dledger-mq settings
    dledger-mq settings fileReservedTime=48 'deleteWhen=04;16'
    dledger-mq settings fileReservedTime=           back to the command line's value

    All of a command are changed, or none. docs/settings.md lists what can be changed.
    """  # noqa: D301 - click's mark, a backspace
    values: dict[str, str] = {}
    for text in changes:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.UsageError(f"{text!r:.80}: give NAME=VALUE")
        values[name] = value

    if not values:
        _show_settings(values, broker_name, as_json)
        return
    change(lambda admin: admin.change_settings(values, broker_name=broker_name))
    with telling_what_is_done("the settings are changed", expected=COMMAND_ERRORS):
        _show_settings(values, broker_name, as_json)


def _show_settings(names: Collection[str], broker_name: str, as_json: bool) -> None:
    """Print the settings with one of these names, or all."""
    rows = [
        {"broker": name, "setting": setting, "value": value}
        for name, shown in ask(lambda admin: admin.settings()).items()
        for setting, value in shown.items()
        if broker_name in ("", name) and (not names or setting in names)
    ]
    print_rows(("broker", "setting", "value"), rows, as_json)
