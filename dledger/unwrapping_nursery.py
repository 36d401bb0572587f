"""A nursery for blocks of users, which raises their own exceptions instead of groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def unwrapping_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery that raises a lone exception as itself, not in a group.

    An error that meets a cancellation from outside is still raised alone.
    """
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        _, errors = group.split(trio.Cancelled)
        alone: BaseException = errors or group
        while isinstance(alone, BaseExceptionGroup) and len(alone.exceptions) == 1:
            alone = alone.exceptions[0]
        if alone is group:
            raise
        raise alone from alone.__cause__
