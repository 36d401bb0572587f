"""`dledger-mq find`: messages by their keys."""

import sys
from collections.abc import Sequence

import click

from dledger_mq.admin.admin import DEFAULT_FOUND, Admin
from dledger_mq.commands.command_line import FAILED, nameserver_option, run, say
from dledger_mq.commands.rows import message_line
from dledger_mq.received_message import ReceivedMessage


@click.command("find")
@click.argument("topic")
@click.argument("key")
@click.option(
    "--most",
    type=click.IntRange(1, 64),
    default=DEFAULT_FOUND,
    show_default=True,
    help="No more messages than this of each group of brokers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
@nameserver_option
def find(topic: str, key: str, most: int, as_json: bool, nameservers: Sequence[str]) -> None:
    """Print the messages of TOPIC with this KEY, the newest first.

    KEY is one of a message's keys, or the id that a send has printed. It is no failure of the
    brokers if there is none, but the exit code is 1.
    """

    async def task() -> list[ReceivedMessage]:
        async with Admin(nameservers=nameservers) as admin:
            return await admin.find(topic, key, most=most)

    found = run(task)
    for message in found:
        if not say(message_line(message, as_json)):
            return
    if not found:
        click.echo(f"dledger-mq: no message of {topic} has the key {key}", err=True)
        sys.exit(FAILED)
