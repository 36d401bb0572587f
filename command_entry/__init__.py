"""Where the commands begin: Ctrl-C and a lack of memory end them without a traceback.

Loading trio and what draws tables takes a few tenths of a second. This package imports neither
until Ctrl-C is dealt with, so no command's own package can do its work.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# What a shell reports for a program that Ctrl-C ended.
INTERRUPTED = 130

# As in `dledger.system_refusals`, which cannot be loaded then.
NO_MEMORY = (
    "the system gives this process no more memory: raise `ulimit -v` or the memory limit of its "
    "control group, or free memory, then start again"
)
# What the loader of glibc, or that of musl, says of a library for which there is no memory.
_UNMAPPED = re.compile("failed to map segment|cannot allocate memory", re.IGNORECASE)


def broker() -> int:
    """`python -m broker`; its exit code."""
    with _loading("broker"):
        from broker.broker_command import main
    return main()


def nameserver() -> None:
    """`python -m nameserver`."""
    with _loading("nameserver"):
        from nameserver.nameserver_command import main
    main(prog_name="python -m nameserver")


def dledger() -> None:
    """The `dledger` command."""
    with _loading("dledger"):
        from dledger.__main__ import main
    main()


def dledger_mq() -> None:
    """The `dledger-mq` command."""
    with _loading("dledger-mq"):
        from dledger_mq.__main__ import main
    main()


def dledger_spark() -> None:
    """The `dledger-spark` command."""
    with _loading("dledger-spark"):
        from dledger_spark.commands.spark_commands import main
    main()


def jepsen_like() -> None:
    """The `jepsen-like` command."""
    with _loading("jepsen-like"):
        from jepsen_like.__main__ import main
    main()


def _is_short(error: BaseException) -> bool:
    """Whether what loads failed for a lack of memory."""
    match error:
        case MemoryError():
            return True
        case OSError():
            return error.errno == errno.ENOMEM
        case SystemError():  # C code that got no memory, and does not say so
            return "without exception set" in str(error)
        case _:
            return _UNMAPPED.search(str(error)) is not None


@contextmanager
def _loading(command: str) -> Iterator[None]:
    """End the process with one line if there is too little memory to load the command, and without
    a word at Ctrl-C; nothing has begun that could be left half done.

    What a shell started in the background ignores Ctrl-C, and goes on doing so.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    try:
        yield
    except (MemoryError, ImportError, OSError, SystemError) as error:
        if not _is_short(error):
            raise
        sys.exit(f"{command}: {NO_MEMORY}")
    finally:
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)
