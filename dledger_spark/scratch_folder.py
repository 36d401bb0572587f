"""A temporary folder that is removed by its owner, or by the next owner if that was killed."""

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
    """Yield a new temporary folder, which is removed at the end.

    A killed process leaves its folder behind, so this first removes folders whose owner is gone. A
    living owner holds a lock in its folder, which the system releases with the process.
    """
    parent = tempfile.gettempdir()
    for name in os.listdir(parent):
        if name.startswith(PREFIX):
            _remove_if_left(f"{parent}/{name}")
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    # The file is renamed after it is locked, so no other process can find it unlocked.
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
        return  # another user's, or still being made
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # its owner lives
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
