"""Reads the grammar of conditions beside the event loop, before a consumer needs it."""

import trio

from broker.filters.condition import load_parser


async def load_parser_early() -> None:
    """Load the parser in a thread: that takes a tenth of a second, which no client waits for."""
    await trio.to_thread.run_sync(load_parser)
