"""Waits for a condition by polling."""

from __future__ import annotations

from collections.abc import Callable

import trio

LOOK_EVERY_S = 0.1


async def until(is_so: Callable[[], bool]) -> None:
    """Poll, in virtual time, until the condition holds."""
    while not is_so():  # noqa: ASYNC110  what is looked at belongs to the product
        await trio.sleep(LOOK_EVERY_S)
