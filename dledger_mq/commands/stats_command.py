"""`dledger-mq stats`: what brokers have counted."""

from dataclasses import asdict

import click

from dledger.command_line.ending import CommandFailed
from dledger_mq.commands.command_line import ask, lines_option, nameserver_option, print_rows


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
