"""`dledger-mq consume`: print messages as they come."""

import sys
from collections.abc import Sequence
from typing import Final

import click
import trio

from dledger_mq.commands.command_line import nameserver_option, run, say
from dledger_mq.commands.rows import message_line
from dledger_mq.consuming.push_consumer import PushConsumer, PushOptions
from dledger_mq.message import ConsumeFrom, ConsumeResult
from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.heartbeat import MessageModel

# The group of consumers that only look: they share nothing and leave no offsets.
_LOOKING_GROUP: Final = "dledger-mq-consume"

# Printing takes no time; what still waits after this is not wanted any more.
_CLOSE_SECONDS: Final = 0.2


@click.command("consume")
@click.argument("topic")
@click.option(
    "--group", help="Consume as a member of this group; without it, only look at the messages."
)
@click.option("--tags", default="*", show_default=True, help='Tags, as "TagA || TagB".')
@click.option("--from-first", is_flag=True, help="Begin with the first message, not with new ones.")
@click.option("--count", type=click.IntRange(1), help="End after so many messages.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=float,
    default=float("inf"),
    help="End after so many seconds; with --count that is a failure, exit code 2.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
@click.option("--trace", is_flag=True, help="Write message traces, which `trace` shows.")
@nameserver_option
def consume(
    topic: str,
    group: str | None,
    tags: str,
    from_first: bool,
    count: int | None,
    timeout_seconds: float,
    as_json: bool,
    trace: bool,
    nameservers: Sequence[str],
) -> None:
    """Print the messages of TOPIC as they come, until Ctrl-C."""

    async def task() -> int:
        seen = 0
        enough = trio.Event()

        async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            nonlocal seen
            for message in messages:
                if enough.is_set():
                    # The program is ending; what is not printed must not be committed.
                    await trio.sleep_forever()
                if not say(message_line(message, as_json)):
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
            nameservers=nameservers,
            model=MessageModel.BROADCASTING if group is None else MessageModel.CLUSTERING,
            consume_from=ConsumeFrom.FIRST if from_first else ConsumeFrom.LAST,
            options=PushOptions(concurrency=1, close_timeout_seconds=_CLOSE_SECONDS),
            trace=trace,
        ):
            with trio.move_on_after(timeout_seconds):
                await enough.wait()
        return seen

    seen = run(task)
    if count is not None and seen < count:
        click.echo(f"dledger-mq: {seen} of {count} messages came", err=True)
        sys.exit(2)
