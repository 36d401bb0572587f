"""Has a watcher look after this process during a block."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jepsen_like.chaos.links.namespaces import prefix_of
from jepsen_like.chaos.watcher.marked import GONE_TIMEOUT_S, VARIABLE, can_find

# Unmounting takes some time after the last process is gone.
END_TIMEOUT_S = GONE_TIMEOUT_S + 15.0


@contextmanager
def watched(folder: Path | None = None) -> Iterator[None]:
    """Leave nothing of the block behind, even if this process is killed with SIGKILL in it.

    All processes that it starts, and those that they start, are killed: also those that were
    stopped by SIGSTOP, which do not notice that their standard input ends. The namespaces of this
    process are removed, and the disks of members in `folder` are unmounted; their content stays.
    Where the system does not show the environment of processes, which is anywhere but on Linux,
    nothing is done.
    """
    if not can_find():
        yield
        return
    pid = os.getpid()
    mark = f"{pid}-{time.monotonic_ns()}"
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = mark
    words = [mark, prefix_of(pid), *([] if folder is None else [str(folder)])]
    watcher = subprocess.Popen(
        [sys.executable, "-m", "jepsen_like.chaos.watcher", *words],
        stdin=subprocess.PIPE,
        start_new_session=True,  # signals to the group or the terminal of the run do not reach it
    )
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
        try:
            watcher.communicate(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            watcher.kill()
            watcher.wait()
