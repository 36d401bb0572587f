"""The entry points of the commands: Ctrl-C and a lack of memory end them without a traceback.

Loading trio and the library for tables takes a few tenths of a second. This package handles Ctrl-C
before it imports either, which no command's own package could do.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# A shell's exit code for a program that Ctrl-C ended.
INTERRUPTED = 130

# The text of `dledger.system_refusals`, which cannot be loaded without memory.
NO_MEMORY = (
    "the system gives this process no more memory: raise `ulimit -v` or the memory limit of its "
    "control group, or free memory, then start again"
)
# The errors of glibc's and musl's loaders for a library without memory.
_UNMAPPED = re.compile("failed to map segment|cannot allocate memory", re.IGNORECASE)


def broker() -> int:
    """Run `python -m broker`; return its exit code."""
    with _loading("broker"):
        from broker.broker_command import main
    return main()


def nameserver() -> None:
    """Run `python -m nameserver`."""
    with _loading("nameserver"):
        from nameserver.nameserver_command import main
    main(prog_name="python -m nameserver")


def proxy() -> None:
    """Run `python -m proxy`."""
    with _loading("proxy"):
        from proxy.proxy_command import main
    main(prog_name="python -m proxy")


def dledger() -> None:
    """Run the `dledger` command."""
    with _loading("dledger"):
        from dledger.__main__ import main
    main()


def dledger_mq() -> None:
    """Run the `dledger-mq` command."""
    with _loading("dledger-mq"):
        from dledger_mq.__main__ import main
    main()


def dledger_spark() -> None:
    """Run the `dledger-spark` command."""
    with _loading("dledger-spark"):
        from dledger_spark.commands.spark_commands import main
    main()


def jepsen_like() -> None:
    """Run the `jepsen-like` command."""
    with _loading("jepsen-like"):
        from jepsen_like.__main__ import main
    main()


def _is_short(error: BaseException) -> bool:
    """Return whether loading failed for a lack of memory."""
    match error:
        case MemoryError():
            return True
        case OSError():
            return error.errno == errno.ENOMEM
        case SystemError():  # C code that got no memory, without an error of its own
            return "without exception set" in str(error)
        case _:
            return _UNMAPPED.search(str(error)) is not None


@contextmanager
def _loading(command: str) -> Iterator[None]:
    """End the process with one line for a lack of memory, and silently at Ctrl-C.

    No work has begun that could be left incomplete. A program that a shell started in the
    background ignores Ctrl-C, and continues to do so.
    """
    before = signal.getsignal(signal.SIGINT)
    # What is loaded stays. To look for garbage in it while it grows took a fifth of the time.
    gc.disable()
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    try:
        yield
    except (MemoryError, ImportError, OSError, SystemError) as error:
        if not _is_short(error):
            raise
        sys.exit(f"{command}: {NO_MEMORY}")
    finally:
        gc.enable()
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)
