"""`dledger-mq send`: send messages from the command line."""

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dledger_mq.command_line import errors, nameserver_option, run
from dledger_mq.message import Message
from dledger_mq.producer import Producer
from dledger_mq.selectors import by_key
from dledger_mq.send_result import SendResult

# Messages between two steps of the progress bar; enough to keep the pipeline busy.
_STEP = 2000


@click.command("send")
@click.argument("topic")
@click.argument("bodies", nargs=-1, metavar="[BODY]...")
@click.option("--group", default="dledger-mq-send", show_default=True, help="Producer group.")
@click.option("--tags", default="", help="The messages' tag.")
@click.option("--keys", default="", help="The messages' keys, separated by spaces.")
@click.option("--order-by", "order_key", help="Send all to one queue, chosen by this text.")
@click.option(
    "--count", type=click.IntRange(1), help="Send so many, repeating BODY or made up ones."
)
@click.option(
    "--size",
    type=click.IntRange(1, 4 * 1024 * 1024),
    default=100,
    show_default=True,
    help="Bytes of made up bodies.",
)
@click.option(
    "--timeout", "timeout_seconds", default=3.0, show_default=True, help="Seconds for each message."
)
@nameserver_option
def send(
    topic: str,
    bodies: tuple[str, ...],
    group: str,
    tags: str,
    keys: str,
    order_key: str | None,
    count: int | None,
    size: int,
    timeout_seconds: float,
    nameservers: Sequence[str],
) -> None:
    """Send each BODY to TOPIC; without one, each line of standard input."""
    messages = (
        Message(topic, body, tags=tags, keys=keys)
        for body in _bodies([os.fsencode(body) for body in bodies], count, size)
    )
    total = count or (len(bodies) or None)
    selector = None if order_key is None else by_key(order_key)

    async def task() -> int:
        sent = 0
        async with Producer(
            group, nameservers=nameservers, timeout_seconds=timeout_seconds
        ) as producer:
            with Progress(
                TextColumn("sending"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=errors,
                transient=True,
            ) as progress:
                bar = progress.add_task("", total=total)
                while step := list(islice(messages, _STEP)):
                    results = await producer.send_many(step, selector=selector)
                    sent += len(results)
                    progress.update(bar, advance=len(results))
                    if count is None:
                        _print(results)
        return sent

    click.echo(f"{run(task)} messages acknowledged")


def _bodies(given: Sequence[bytes], count: int | None, size: int) -> Iterator[bytes]:
    """The bodies to send."""
    if count is not None:
        for number in range(count):
            made_up = f"{number} ".encode().ljust(size, b"x")[:size]
            yield given[number % len(given)] if given else made_up
    elif given:
        yield from given
    else:
        for line in sys.stdin.buffer:
            body = line.rstrip(b"\r\n")
            if body:
                yield body


def _print(results: Sequence[SendResult]) -> None:
    """One line a message."""
    for result in results:
        doubt = " (possibly stored twice)" if result.possibly_duplicated else ""
        queue = result.queue
        click.echo(
            f"{result.message_id} {queue.broker_name} queue {queue.queue_id} "
            f"offset {result.queue_offset}{doubt}"
        )
