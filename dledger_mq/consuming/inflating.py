"""Reads answers with messages: compressed ones beside the loop."""

from typing import Protocol, TypeVar

from dledger_mq.connection.side_work import SideWork
from dledger_mq.received_message import BodyCompressed

Read_co = TypeVar("Read_co", covariant=True)


class Reading(Protocol[Read_co]):
    """Reads an answer."""

    def __call__(self, *, inflates: bool) -> Read_co:
        """Raises BodyCompressed if a body is compressed, and is not to be inflated."""
        ...


async def read_beside(side_work: SideWork, read: Reading[Read_co]) -> Read_co:
    """Read an answer here; in a thread if it holds compressed bodies.

    Few bytes may be inflated to many: 32 messages of 4 KiB to 128 MiB, which takes half a second.
    To hand over to a thread takes 0.1 ms, less than to inflate what producers compress.
    """
    try:
        return read(inflates=False)
    except BodyCompressed:
        return await side_work.run(lambda: read(inflates=True))
