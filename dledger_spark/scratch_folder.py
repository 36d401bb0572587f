"""A temporary folder that goes away with its owner, if need be with the next one's help."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

PREFIX: Final = "dledger-spark-"
_LOCK: Final = "lock"


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A new folder among the temporary ones, removed at the end.

    A process that is killed leaves its folder, so folders whose owner is gone are removed first.
    A living owner holds a lock in its folder, which the system ends with the process.
    """
    parent = tempfile.gettempdir()
    for name in os.listdir(parent):
        if name.startswith(PREFIX):
            _remove_if_left(f"{parent}/{name}")
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    # The lock gets its name when it is held: no process can find it free in between.
    descriptor = os.open(f"{folder}/.{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.rename(f"{folder}/.{_LOCK}", f"{folder}/{_LOCK}")
        yield folder
    finally:
        os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_if_left(folder: str) -> None:
    try:
        descriptor = os.open(f"{folder}/{_LOCK}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # another user's, or just being made
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # its owner lives
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
