"""The lines that a process of a run reads on standard input, and writes on standard output.

They do not use the network that the run breaks. The process ends with its standard input: so it
ends with the run, however that ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import trio

from dledger.command_line.server_signals import standard_input

LINE_BYTES_MAX = 1024 * 1024
TELL_EVERY_S = 0.5


async def lines_of(stream: trio.abc.ReceiveStream) -> AsyncGenerator[str, None]:
    """Yield the lines that arrive on a stream. A last line without an end is left out."""
    rest = b""
    while piece := await stream.receive_some(64 * 1024):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode()
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line of more than {LINE_BYTES_MAX} bytes")


@asynccontextmanager
async def heard_orders() -> AsyncIterator[AsyncIterator[str]]:
    """Read standard input during a block; yield an iterator of its lines."""
    async with standard_input() as stream:
        yield lines_of(stream)


def say(**fields: object) -> None:
    with suppress(BrokenPipeError):  # the run is gone: standard input ends, too
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


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
