"""Refuses calls outside trio with an error that says what to use instead; trio's does not."""

from __future__ import annotations

import trio

from dledger.errors import NotInTrio

BRIDGED = "under asyncio use dledger.for_asyncio.{call}, without a loop dledger.blocking.{call}"


def require_trio(call: str, instead: str = BRIDGED) -> None:
    """Raise NotInTrio unless a trio task makes this call; `instead` says what to do."""
    if not trio.lowlevel.in_trio_task():
        raise NotInTrio(call, instead.format(call=call))
