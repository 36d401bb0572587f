"""Rows and messages as a terminal, a pipe and JSON want them."""

import json
import sys
from collections.abc import Mapping, Sequence

import click
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from dledger_mq.commands.command_line import output, say
from dledger_mq.received_message import ReceivedMessage


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, object]], as_json: bool) -> None:
    """Print rows: a table in a terminal, else a line a row with tabs between its values.

    Args:
        columns: what is shown of each row, and the titles.
        rows: the rows; as JSON, all that they have is printed.
        as_json: print one JSON object a line instead.
    """
    if as_json:
        for row in rows:
            if not say(json.dumps(row)):
                return
        return
    if not sys.stdout.isatty():
        for row in rows:
            if not say("\t".join(_word(row.get(column)) for column in columns)):
                return
        return
    table = Table(*(Column(title, no_wrap=True) for title in columns), box=SIMPLE_HEAD, padding=0)
    for row in rows:
        table.add_row(*(_word(row.get(column)) for column in columns))
    output.print(table)


def _word(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)


def message_line(message: ReceivedMessage, as_json: bool) -> str:
    """A line: its body, or a JSON object."""
    body = message.body.decode("utf-8", "backslashreplace")
    if not as_json:
        return body
    return json.dumps(
        {
            "topic": message.topic,
            "tags": message.tags,
            "keys": message.keys,
            "body": body,
            "message_id": message.message_id,
            "offset_message_id": message.offset_message_id,
            "broker_name": message.queue.broker_name,
            "queue_id": message.queue.queue_id,
            "queue_offset": message.queue_offset,
            "reconsume_times": message.reconsume_times,
            "born_timestamp": message.born_timestamp,
            "store_timestamp": message.store_timestamp,
            "properties": message.properties,
        }
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
