"""`dledger-mq topic ...`: make, list, remove and look at topics."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

import click

from dledger_mq.admin.admin import DEFAULT_QUEUES, MESSAGE_TYPES, Admin, QueueProgress
from dledger_mq.commands.command_line import FAILED, nameserver_option, run, say
from dledger_mq.commands.rows import print_rows


@click.group("topic")
def topic_commands() -> None:
    """Make, list, remove and look at topics."""


@topic_commands.command("create")
@click.argument("topic")
@click.option(
    "--queues",
    type=click.IntRange(1, 1024),
    default=DEFAULT_QUEUES,
    show_default=True,
    help="Queues on each group of brokers.",
)
@click.option(
    "--type",
    "message_type",
    type=click.Choice(MESSAGE_TYPES, case_sensitive=False),
    help="What it is for; clients of RocketMQ 5 send only that. Kept as it is without this.",
)
@nameserver_option
def create(topic: str, queues: int, message_type: str | None, nameservers: Sequence[str]) -> None:
    """Make TOPIC, or change its number of queues or its type of messages."""

    async def task() -> None:
        async with Admin(nameservers=nameservers) as admin:
            await admin.create_topic(topic, queues=queues, message_type=message_type)

    run(task)
    click.echo(f"topic {topic} has {queues} queues on each group")


@topic_commands.command("list")
@nameserver_option
def list_topics(nameservers: Sequence[str]) -> None:
    """Print the names of all topics."""

    async def task() -> list[str]:
        async with Admin(nameservers=nameservers) as admin:
            return await admin.topics()

    for topic in run(task):
        click.echo(topic)


@topic_commands.command("delete")
@click.argument("topic")
@nameserver_option
def delete(topic: str, nameservers: Sequence[str]) -> None:
    """Remove TOPIC and its messages."""

    async def task() -> bool:
        async with Admin(nameservers=nameservers) as admin:
            was_there = topic in await admin.topics()
            await admin.delete_topic(topic)
            return was_there

    if not run(task):
        click.echo(
            f"dledger-mq: no topic {topic!r} was there: see that its name is right", err=True
        )
        sys.exit(FAILED)
    click.echo(f"topic {topic} is removed")


@topic_commands.command("status")
@click.argument("topic")
@click.option("--group", help="Also show how far this consumer group is.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@nameserver_option
def status(topic: str, group: str | None, as_json: bool, nameservers: Sequence[str]) -> None:
    """Show how far the queues of TOPIC are filled, and consumed."""

    async def task() -> list[QueueProgress]:
        async with Admin(nameservers=nameservers) as admin:
            return await admin.progress(topic, group)

    rows = run(task)
    if as_json:
        click.echo(json.dumps([{**asdict(row), "lag": row.lag} for row in rows]))
        return
    table: list[dict[str, object]] = [
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
def groups(topic: str, nameservers: Sequence[str]) -> None:
    """Print the consumer groups that subscribe to TOPIC now, or have consumed it."""

    async def task() -> list[str]:
        async with Admin(nameservers=nameservers) as admin:
            return await admin.groups_of(topic)

    for group in run(task):
        if not say(group):
            return
