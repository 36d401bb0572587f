"""Where the commands begin: Ctrl-C ends them without a traceback while they still load.

Loading trio and what draws tables takes a few tenths of a second. This package imports neither
until Ctrl-C is dealt with, so no command's own package can do its work.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

# What a shell reports for a program that Ctrl-C ended.
INTERRUPTED = 130


def dledger() -> None:
    """The `dledger` command."""
    with _quiet_interrupt():
        from dledger.__main__ import main
    main()


def dledger_mq() -> None:
    """The `dledger-mq` command."""
    with _quiet_interrupt():
        from dledger_mq.__main__ import main
    main()


def dledger_spark() -> None:
    """The `dledger-spark` command."""
    with _quiet_interrupt():
        from dledger_spark.commands import main
    main()


def jepsen_like() -> None:
    """The `jepsen-like` command."""
    with _quiet_interrupt():
        from jepsen_like.__main__ import main
    main()


@contextmanager
def _quiet_interrupt() -> Iterator[None]:
    """End the process at Ctrl-C during the block; nothing has begun that could be left half done.

    What a shell started in the background ignores Ctrl-C, and goes on doing so.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
