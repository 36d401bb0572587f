"""`dledger append`: appends its arguments, or lines of standard input as they come."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial

import click
import trio

from dledger.client.remote_log import RemoteLog
from dledger.command_line.options import TIMEOUT, json_option, option
from dledger.command_line.standard_streams import input_descriptor, telling_what_is_done
from dledger.commands.group_options import NamedGroup, given_group, group_options
from dledger.entry import MAX_BODY_BYTES
from dledger.errors import DLedgerError, EntryTooLarge
from dledger.wire.client_protocol import MAX_BODIES

# One read from a pipe: enough lines for a batch that keeps the disks busy, and little memory.
_READ_BYTES = 256 * 1024

_ADVICE = "read the log before you append more"


@click.command()
@group_options
@option(
    "--timeout",
    "timeout_s",
    "Seconds to wait for each batch of bodies.",
    default=10.0,
    type=TIMEOUT,
)
@json_option("One JSON object an entry.")
@click.argument("bodies", nargs=-1)
def append(
    timeout_s: float,
    as_json: bool,
    bodies: tuple[str, ...],
) -> None:
    """Append each of BODIES, or each line of standard input, as one entry.

    \b
      dledger append --dir /tmp/log hello world
      dledger append --peers n0=10.0.0.1:20911 <lines.txt
      tail -F app.log | dledger append --dir /tmp/log

    Prints index, term and position of each once it is on a quorum's disks. Bodies are bytes, in
    whatever encoding: of a line, all of them before the newline.

    Exit code 1: an entry was not appended, nor any after it. Exit code 3: it is not known whether
    the last batch was appended, or it was, but standard output could not be written; read the log
    before you append it again.
    """  # noqa: D301 - click's mark, a backspace
    # fsencode restores the bytes from the shell, even if they are not UTF-8.
    bodies_given = [os.fsencode(body) for body in bodies]
    trio.run(_append, given_group(), bodies_given, timeout_s, as_json)


async def _append(
    group: NamedGroup, given: Sequence[bytes], timeout_s: float, as_json: bool
) -> None:
    async with group.log(timeout_s) as log:
        found = _given(given) if given else lines(_read_input)
        await append_batches(log, found, partial(_print, as_json))


async def _read_input() -> bytes:
    # A read cannot be cancelled: Ctrl-C leaves the thread behind.
    return await trio.to_thread.run_sync(
        os.read, input_descriptor(), _READ_BYTES, abandon_on_cancel=True
    )


def _print(as_json: bool, index: int, term: int, pos: int) -> None:
    if as_json:
        click.echo(json.dumps({"index": index, "term": term, "pos": pos}))
    else:
        click.echo(f"{index}\t{term}\t{pos}")


async def _given(bodies: Sequence[bytes]) -> AsyncGenerator[list[bytes], None]:
    for batch in batches(bodies):
        yield batch


async def append_batches(
    log: RemoteLog,
    batches: AsyncGenerator[list[bytes], None],
    tell: Callable[[int, int, int], None],
) -> None:
    """Append the batches in turn, and report every entry once it is committed.

    Raises as RemoteLog.append_many; reported entries stay appended.
    """
    done = 0
    async with aclosing(batches):
        async for bodies in batches:
            try:
                appended = await log.append_many(bodies)
            except DLedgerError:
                if done:
                    click.echo(f"{done} bodies were appended before this:", err=True)
                raise
            done += len(appended)
            with telling_what_is_done(f"{done} bodies were appended", _ADVICE):
                for each in appended:
                    tell(each.index, each.term, each.pos)


async def lines(read: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[list[bytes], None]:
    """Yield the lines of an input, without their newlines, in batches, as soon as they are read.

    `read` returns some bytes, or none at the end. Holds at most one piece of the input and one
    line. Raises EntryTooLarge for a line that is longer than any entry.
    """
    begun: list[bytes] = []  # the parts of a line whose newline was not read yet
    begun_bytes = 0
    while piece := await read():
        first, *others = piece.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if begun_bytes > MAX_BODY_BYTES:
            raise EntryTooLarge(begun_bytes, MAX_BODY_BYTES)
        if others:
            whole = [b"".join(begun), *others]
            begun = [whole.pop()]
            begun_bytes = len(begun[0])
            for batch in batches(whole):
                yield batch
    if begun_bytes:
        yield [b"".join(begun)]


def batches(bodies: Sequence[bytes]) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    size = 0
    for body in bodies:
        if not found or len(found[-1]) == MAX_BODIES or size + len(body) > MAX_BODY_BYTES:
            found.append([])
            size = 0
        found[-1].append(body)
        size += len(body)
    return found
