"""`dledger-mq topic ...`: create, list, delete and show topics."""

import json
from dataclasses import asdict

import click

from dledger.command_line.ending import CommandFailed, ExitCode
from dledger.command_line.options import json_option, option
from dledger.command_line.rows import say_each
from dledger.command_line.standard_streams import say_done
from dledger_mq.admin.admin import DEFAULT_QUEUES, MESSAGE_TYPES, Admin
from dledger_mq.commands.command_line import ask, change, nameserver_option, print_rows
from dledger_mq.errors import RouteNotFound


@click.group("topic")
def topic_commands() -> None:
    """Make, list, remove and look at topics."""


@topic_commands.command("create")
@click.argument("topic")
@option(
    "--queues",
    "Queues on each group of brokers.",
    type=click.IntRange(1, 1024),
    default=DEFAULT_QUEUES,
)
@option(
    "--type",
    "message_type",
    "What it is for; clients of RocketMQ 5 send only that. Kept as it is without this.",
    type=click.Choice(MESSAGE_TYPES, case_sensitive=False),
)
@nameserver_option
def create(topic: str, queues: int, message_type: str | None) -> None:
    """Make TOPIC, or change its number of queues or its type of messages."""
    try:
        change(lambda admin: admin.create_topic(topic, queues=queues, message_type=message_type))
    except RouteNotFound:
        problem = f"topic {topic} is made, but name servers do not know it yet: look at it later"
        raise CommandFailed(problem, ExitCode.OUTCOME_UNKNOWN) from None
    say_done(f"topic {topic} has {queues} queues on each group")


@topic_commands.command("list")
@nameserver_option
def list_topics() -> None:
    """Print the names of all topics."""
    say_each(ask(lambda admin: admin.topics()))


@topic_commands.command("delete")
@click.argument("topic")
@nameserver_option
def delete(topic: str) -> None:
    """Remove TOPIC and its messages."""

    async def removed(admin: Admin) -> bool:
        was_there = topic in await admin.topics()
        await admin.delete_topic(topic)
        return was_there

    if not change(removed):
        raise CommandFailed(f"no topic {topic!r} was there: see that its name is right")
    say_done(f"topic {topic} is removed")


@topic_commands.command("status")
@click.argument("topic")
@option("--group", "Also show how far this consumer group is.")
@json_option("Print JSON.")
@nameserver_option
def status(topic: str, group: str | None, as_json: bool) -> None:
    """Show how far the queues of TOPIC are filled, and consumed."""
    rows = ask(lambda admin: admin.progress(topic, group))
    if as_json:
        click.echo(json.dumps([{**asdict(row), "lag": row.lag} for row in rows]))
        return
    table = [
        {
            "broker": row.queue.broker_name,
            "queue": row.queue.queue_id,
            "first": row.first_offset,
            "next": row.next_offset,
            "committed": row.committed,
            "lag": None if group is None else row.lag,
        }
        for row in rows
    ]
    print_rows(("broker", "queue", "first", "next", "committed", "lag"), table, as_json=False)


@topic_commands.command("groups")
@click.argument("topic")
@nameserver_option
def groups(topic: str) -> None:
    """Print the consumer groups that subscribe to TOPIC now, or have consumed it."""
    say_each(ask(lambda admin: admin.groups_of(topic)))
