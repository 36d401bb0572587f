"""`dledger-mq send`: send messages from the command line."""

import os
import select
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from itertools import islice

import click
import trio

from dledger.command_line.options import TIMEOUT, flag, option
from dledger.command_line.progress import counted
from dledger.command_line.standard_streams import input_descriptor, telling_what_is_done
from dledger_mq.commands.command_line import nameserver_option, with_client
from dledger_mq.connection.client import Client
from dledger_mq.errors import InvalidMessage
from dledger_mq.message import Message
from dledger_mq.producing.producer import Producer
from dledger_mq.send_result import SendResult
from dledger_mq.sending.selectors import by_key

# Messages for each step of the progress bar; enough to keep the pipeline busy.
_STEP = 2000

# A step of lines from standard input takes all that have arrived, up to these limits.
_STEP_LINES = 10_000
_STEP_BYTES = 1024 * 1024

# One read: the capacity of a pipe.
_READ_BYTES = 64 * 1024

# The longest line: a broker accepts no larger message.
_MAX_LINE_BYTES = 4 * 1024 * 1024

_ADVICE = "look what is stored before you send more"


@click.command("send")
@click.argument("topic")
@click.argument("bodies", nargs=-1, metavar="[BODY]...")
@option("--group", "Producer group.", default="dledger-mq-send")
@option("--tags", "The messages' tag.", default="", show_default=False)
@option("--keys", "The messages' keys, separated by spaces.", default="", show_default=False)
@option("--order-by", "order_key", "Send all to one queue, chosen by this text.")
@option("--count", "Send so many, repeating BODY or made up ones.", type=click.IntRange(1))
@option("--size", "Bytes of made up bodies.", type=click.IntRange(1, 4 * 1024 * 1024), default=100)
@option("--timeout", "timeout_s", "Seconds for each message.", default=3.0, type=TIMEOUT)
@flag("--trace", "Write message traces, which `trace` shows.")
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
    timeout_s: float,
    trace: bool,
) -> None:
    """Send each BODY to TOPIC; without one, each line of standard input, as it comes."""
    given = [os.fsencode(body) for body in bodies]
    from_input = count is None and not given
    total = count or (len(bodies) or None)
    selector = None if order_key is None else by_key(order_key)

    async def task(client: Client) -> int:
        sent = 0
        async with (
            Producer(group, client=client, timeout_s=timeout_s, trace=trace) as producer,
            aclosing(_input(topic) if from_input else _made(given, count, size)) as steps,
        ):
            with counted("sending", total) as advance:
                async for step in steps:
                    results = await producer.send_many(
                        [Message(topic, body, tags=tags, keys=keys) for body in step],
                        selector=selector,
                    )
                    sent += len(results)
                    advance(len(results))
                    if count is None:
                        with telling_what_is_done(f"{sent} messages were sent", _ADVICE):
                            _print(results)
        return sent

    acknowledged = f"{with_client(task)} messages acknowledged"
    with telling_what_is_done(acknowledged, _ADVICE):
        click.echo(acknowledged)


async def _made(
    given: Sequence[bytes], count: int | None, size: int
) -> AsyncGenerator[list[bytes], None]:
    """Yield the given bodies, or `count` of them, or made up ones, in steps."""
    bodies = iter(given) if count is None else _repeated(given, count, size)
    while step := list(islice(bodies, _STEP)):
        yield step


def _repeated(given: Sequence[bytes], count: int, size: int) -> Iterator[bytes]:
    for number in range(count):
        made_up = f"{number} ".encode().ljust(size, b"x")[:size]
        yield given[number % len(given)] if given else made_up


async def _input(topic: str) -> AsyncGenerator[list[bytes], None]:
    """Yield the lines of standard input in steps, each as soon as it has arrived.

    Empty lines are skipped. Raises InvalidMessage for a line that is longer than brokers accept.
    """
    descriptor = input_descriptor()
    begun = bytearray()  # a line whose end has not arrived
    # A read cannot be cancelled: Ctrl-C leaves the thread behind.
    while data := await trio.to_thread.run_sync(_arrived, descriptor, abandon_on_cancel=True):
        ended, newline, rest = data.rpartition(b"\n")
        if newline:
            lines = [line.rstrip(b"\r") for line in bytes(begun + ended).split(b"\n")]
            bodies = [line for line in lines if line]
            for at in range(0, len(bodies), _STEP_LINES):
                yield bodies[at : at + _STEP_LINES]
            begun.clear()
        begun += rest
        if len(begun) > _MAX_LINE_BYTES:
            raise InvalidMessage(topic, f"a line of more than {_MAX_LINE_BYTES} bytes")
    if last := bytes(begun).rstrip(b"\r"):
        yield [last]


def _arrived(descriptor: int) -> bytes:
    """Wait for input, and return all that has arrived; b"" at its end."""
    pieces = [os.read(descriptor, _READ_BYTES)]
    size = len(pieces[0])
    while pieces[-1] and size < _STEP_BYTES and select.select([descriptor], [], [], 0)[0]:
        pieces.append(os.read(descriptor, _READ_BYTES))
        size += len(pieces[-1])
    return b"".join(pieces)


def _print(results: Sequence[SendResult]) -> None:
    for result in results:
        doubt = " (possibly stored twice)" if result.possibly_duplicated else ""
        queue = result.queue
        click.echo(
            f"{result.message_id} {queue.broker_name} queue {queue.queue_id} "
            f"offset {result.queue_offset}{doubt}"
        )
