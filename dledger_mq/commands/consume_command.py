"""`dledger-mq consume`, `find` and `trace`: print messages, and what happened to them."""

import json
from collections.abc import Sequence
from datetime import UTC
from typing import Final

import click
import trio

from dledger.command_line.ending import CommandFailed
from dledger.command_line.options import TIMEOUT, flag, option
from dledger.command_line.rows import say, say_each
from dledger_mq.admin.admin import DEFAULT_FOUND
from dledger_mq.commands.command_line import (
    ask,
    lines_option,
    nameserver_option,
    print_rows,
    with_client,
    written_time,
)
from dledger_mq.connection.client import Client
from dledger_mq.consuming.push_consumer import PushConsumer, PushOptions
from dledger_mq.message import ConsumeFrom, ConsumeResult
from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.heartbeat import MessageModel
from remoting.bodies.trace import TraceRecord
from remoting.message.topic_names import TRACE_TOPIC

# The group of consumers that only look: they broadcast, and commit no offsets.
_LOOKING_GROUP: Final = "dledger-mq-consume"

# Printing takes no time; messages that still wait after this are not wanted any more.
_CLOSE_S: Final = 0.2


@click.command("consume")
@click.argument("topic")
@option("--group", "Consume as a member of this group; without it, only look at the messages.")
@option("--tags", 'Tags, as "TagA || TagB".', default="*")
@flag("--from-first", "Begin with the first message, not with new ones.")
@option("--count", "End after so many messages.", type=click.IntRange(1))
@option(
    "--timeout",
    "timeout_s",
    "End after so many seconds; with --count that is a failure, exit code 2.",
    type=TIMEOUT,
    default=float("inf"),
    show_default=False,
)
@lines_option
@flag("--trace", "Write message traces, which `trace` shows.")
@nameserver_option
def consume(
    topic: str,
    group: str | None,
    tags: str,
    from_first: bool,
    count: int | None,
    timeout_s: float,
    as_json: bool,
    trace: bool,
) -> None:
    """Print the messages of TOPIC as they come, until Ctrl-C."""

    async def task(client: Client) -> int:
        seen = 0
        enough = trio.Event()
        problem: OSError | None = None

        async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            nonlocal seen, problem
            for message in messages:
                is_said = False
                try:
                    is_said = not enough.is_set() and say(message_line(message, as_json))
                except OSError as error:  # a full disk, say
                    problem = error
                if not is_said:
                    # The program is ending. A message that was not printed is neither consumed nor
                    # failed: the group's next member gets it.
                    enough.set()
                    await trio.sleep_forever()
                seen += 1
                if seen == count:
                    enough.set()
            return ConsumeResult.SUCCESS

        async with PushConsumer(
            group or _LOOKING_GROUP,
            {topic: tags},
            listener,
            client=client,
            model=MessageModel.BROADCASTING if group is None else MessageModel.CLUSTERING,
            consume_from=ConsumeFrom.FIRST if from_first else ConsumeFrom.LAST,
            options=PushOptions(concurrency=1, close_timeout_s=_CLOSE_S),
            trace=trace,
        ):
            with trio.move_on_after(timeout_s):
                await enough.wait()
        if problem is not None:
            raise problem
        return seen

    seen = with_client(task)
    if count is not None and seen < count:
        raise CommandFailed(f"{seen} of {count} messages came", code=2)


@click.command("find")
@click.argument("topic")
@click.argument("key")
@option(
    "--most",
    "No more messages than this of each group of brokers.",
    type=click.IntRange(1, 64),
    default=DEFAULT_FOUND,
)
@lines_option
@nameserver_option
def find(topic: str, key: str, most: int, as_json: bool) -> None:
    """Print the messages of TOPIC with this KEY, the newest first.

    KEY is one of a message's keys, or the id that a send has printed. It is no failure of the
    brokers if there is none, but the exit code is 1.
    """
    found = ask(lambda admin: admin.find(topic, key, most=most))
    say_each(message_line(message, as_json) for message in found)
    if not found:
        raise CommandFailed(f"no message of {topic} has the key {key}")


def message_line(message: ReceivedMessage, as_json: bool) -> str:
    """Format a message as its body, or as a JSON object."""
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


@click.command("trace")
@click.argument("message_id")
@option("--topic", "Where clients write their traces.", default=TRACE_TOPIC)
@lines_option
@nameserver_option
def trace(message_id: str, topic: str, as_json: bool) -> None:
    """Show who sent the message MESSAGE_ID and who consumed it, as clients told.

    MESSAGE_ID is the id that its send has printed. Clients tell only if they are set up to do so.
    The exit code is 1 if nobody has told of the message.
    """
    steps = ask(lambda admin: admin.trace(message_id, trace_topic=topic))
    columns = ("at", "step", "group", "topic", "ms", "succeeded", "details")
    print_rows(columns, [_row(step, as_json) for step in steps], as_json)
    if not steps:
        raise CommandFailed(
            f"no client has told of message {message_id} in {topic}: traces are switched on in "
            "clients, see docs/trace.md"
        )


def _row(step: TraceRecord, as_json: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "at": step.at_ms if as_json else written_time(step.at_ms, UTC, "T", "milliseconds"),
        "step": step.kind,
        "group": step.group or None,
        "topic": step.topic or None,
        "ms": step.cost_ms,
        "succeeded": step.succeeded,
    }
    details: object = dict(step.details)
    if not as_json:
        details = " ".join(f"{name}={value}" for name, value in step.details.items())
    return {**row, "details": details}
