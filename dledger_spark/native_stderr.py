"""Keeps what native libraries write to standard error apart from what Python writes there.

Delta's library is written in Rust, which prints a report of a panic before Python gets the error.
A command tells the error in one line instead.
"""

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Final

_STDERR: Final = 2
_COPY_BYTES: Final = 64 * 1024
# A panic's report: its head, its message, and perhaps a trace; an empty line or the end follows.
_PANIC: Final = re.compile(
    rb"\n?thread '[^'\n]*'[^\n]* panicked at [^\n]*\n(?:[^\n]+\n?)*", re.MULTILINE
)
_held: Final = threading.Lock()
_is_apart = False


def set_python_apart() -> None:
    """Let `sys.stderr` of this process write to a descriptor of its own, for `without_panics`."""
    global _is_apart  # noqa: PLW0603  # a process has one standard error
    if isinstance(sys.stderr, TextIOWrapper) and sys.stderr.fileno() == _STDERR:
        sys.stderr.flush()
        own = open(  # noqa: SIM115  # it stays open as long as the process
            os.dup(_STDERR),
            "w",
            buffering=1,
            encoding=sys.stderr.encoding,
            errors=sys.stderr.errors,
        )
        sys.stderr = own
        _is_apart = True


@contextmanager
def without_panics() -> Iterator[None]:
    """Leave out reports of Rust's panics that native libraries print during the block.

    This does nothing unless `set_python_apart` was called, or in a second thread meanwhile. Other
    output of native libraries comes at the end of the block.
    """
    if not _is_apart or not _held.acquire(blocking=False):
        yield
        return
    before = os.dup(_STDERR)
    kept = os.memfd_create("stderr")
    try:
        os.dup2(kept, _STDERR)
        yield
    finally:
        os.dup2(before, _STDERR)
        os.close(before)
        _held.release()
        os.lseek(kept, 0, os.SEEK_SET)
        with os.fdopen(kept, "rb") as file:
            rest = _PANIC.sub(b"", file.read())
        while rest:
            rest = rest[os.write(_STDERR, rest[:_COPY_BYTES]) :]
