"""`dledger-mq stats`: what brokers have counted."""

import sys
from collections.abc import Sequence
from dataclasses import asdict

import click

from dledger_mq.admin.admin import Admin
from dledger_mq.admin.statistics import Statistic
from dledger_mq.commands.command_line import FAILED, nameserver_option, run
from dledger_mq.commands.rows import json_option, print_rows


@click.command("stats")
@click.argument("name")
@click.argument("key")
@json_option
@nameserver_option
def stats(name: str, key: str, as_json: bool, nameservers: Sequence[str]) -> None:
    """Show what brokers have counted under NAME for KEY in the last minute, hour and day.

    \b
    dledger-mq stats TOPIC_PUT_NUMS Orders            messages stored in a topic
    dledger-mq stats GROUP_GET_NUMS Orders@billing    messages given to a group
    dledger-mq stats GROUP_GET_FALL_TIME 0@Orders@billing
                                                      milliseconds it is behind in queue 0
    dledger-mq stats BROKER_PUT_NUMS DefaultCluster   messages stored by each broker

    docs/statistics.md lists all names. The exit code is 1 if nothing was counted.
    """  # noqa: D301 - click's mark, a backspace

    async def task() -> dict[str, Statistic]:
        async with Admin(nameservers=nameservers) as admin:
            return await admin.statistics(name, key)

    found = run(task)
    rows: list[dict[str, object]] = [
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
        click.echo(
            f"dledger-mq: no broker has counted {name} for {key}: see docs/statistics.md", err=True
        )
        sys.exit(FAILED)
