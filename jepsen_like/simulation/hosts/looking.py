"""Waits until something is so, where nothing says when."""

from __future__ import annotations

from collections.abc import Callable

import trio

LOOK_EVERY_S = 0.1


async def until(is_so: Callable[[], bool]) -> None:
    """Look again and again, in virtual time, until it is so."""
    while not is_so():  # noqa: ASYNC110  what is looked at belongs to the product
        await trio.sleep(LOOK_EVERY_S)
