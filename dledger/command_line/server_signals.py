"""Ends a server at Ctrl-C, SIGTERM, or the end of its standard input."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractContextManager
from typing import Any

import trio

from dledger.errors import ConfigInvalid


def ending_signals() -> AbstractContextManager[Any]:
    """Receive the signals that end a server: Ctrl-C and SIGTERM."""
    return trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM)


async def cancel_on_signal(scope: trio.CancelScope) -> None:
    with ending_signals() as signals:
        async for _ in signals:
            scope.cancel()


def standard_input() -> trio.lowlevel.FdStream:
    """Return a stream of standard input. Raises ConfigInvalid if it is closed."""
    if sys.stdin is None:
        raise ConfigInvalid("standard input", "it is closed: give one, which ends when this is to")
    return trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))


async def end_of_input() -> None:
    """Wait until standard input ends, as it does when the parent process dies."""
    async with standard_input() as stream:
        while await stream.receive_some(4096):
            continue


async def cancel_at_end_of_input(scope: trio.CancelScope) -> None:
    await end_of_input()
    scope.cancel()
