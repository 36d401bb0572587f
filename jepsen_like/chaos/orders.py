"""The lines that a process of a run reads on standard input, and writes on standard output.

They do not use the network that the run breaks. The process ends with its standard input: so it
ends with the run, however that ends.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TextIO

import trio

from dledger.command_line.server_signals import standard_input
from jepsen_like.chaos.harness_failed import HarnessFailed

LINE_BYTES_MAX = 1024 * 1024
TELL_EVERY_S = 0.5
# Standard output, once it was taken.
_taken: list[TextIO] = []


async def lines_of(stream: trio.abc.ReceiveStream) -> AsyncGenerator[str, None]:
    """Yield the lines that arrive on a stream. A last line without an end is left out."""
    rest = b""
    while piece := await stream.receive_some(64 * 1024):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line of more than {LINE_BYTES_MAX} bytes")


@asynccontextmanager
async def heard_orders() -> AsyncIterator[AsyncIterator[str]]:
    """Read standard input during a block; yield an iterator of its lines."""
    async with standard_input() as stream:
        yield lines_of(stream)


def take_output() -> None:
    """Have `say` alone write to standard output: what users' code prints goes to standard error."""
    _taken.append(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)


def say(**fields: object) -> None:
    output = _taken[-1] if _taken else sys.stdout
    with suppress(BrokenPipeError):  # the run is gone: standard input ends, too
        output.write(json.dumps(fields) + "\n")
        output.flush()


def said_by(name: str, line: str) -> dict[str, Any]:
    """Return what a process said in a line. Raises HarnessFailed if it is no answer."""
    with suppress(ValueError):
        said = json.loads(line)
        if isinstance(said, dict):
            return said
    raise HarnessFailed(f"{name} wrote {line!r:.100} to standard output, where only answers may be")


async def follow_orders(
    counts: Callable[[], Mapping[str, int]],
    make_calls: Callable[[], Awaitable[None]],
    end: Callable[[], None],
    make_final_calls: Callable[[], Awaitable[None]],
    follow_other: Callable[[str], None] = lambda _order: None,
) -> None:
    """Make the calls of clients as ordered, until standard input ends.

    The order `end` calls `end`, the order `final` makes the last calls; `follow_other` takes all
    others. `counts` are reported all the time.
    """

    async def tell() -> None:
        while True:
            say(counts=counts())
            await trio.sleep(TELL_EVERY_S)

    async with heard_orders() as orders, trio.open_nursery() as nursery:
        nursery.start_soon(tell)
        nursery.start_soon(make_calls)
        async for order in orders:
            if order == "end":
                end()
            elif order == "final":
                nursery.start_soon(make_final_calls)
            else:
                follow_other(order)
        nursery.cancel_scope.cancel()
