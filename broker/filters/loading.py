"""Reads the grammar of conditions beside the event loop, before a consumer needs it."""

from broker.filters.condition import load_parser
from dledger.waits.blocking_work import in_a_thread


async def load_parser_early() -> None:
    """Load the parser in a thread: that takes a tenth of a second, which no client waits for."""
    await in_a_thread(load_parser)
