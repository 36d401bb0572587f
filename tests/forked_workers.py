"""Starts the processes of `make test` by forks of one that has loaded all tests.

To load the tests and what they test takes ten seconds of the processor, which each process would
need. What is left to it is to make its own list of the tests.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence

import pytest
from execnet.gateway_io import popen_bootstrapline

from tests.forked_starts import Starts, begun, run


class WorkerStarts(Starts):
    """Starts what pytest-xdist starts, and nothing else.

    Args:
        tests: the files and folders with the tests that are loaded.
    """

    def __init__(self, tests: Sequence[str]) -> None:
        super().__init__((sys.executable, "-m", "tests.forked_workers", *tests))

    def is_loaded(self, words: list[str]) -> bool:
        return words == ["-u", "-c", popen_bootstrapline]


class _NoTests:
    """A plugin of pytest that loads modules, and makes no list of what is in them."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self) -> list[pytest.Item]:
        return []


def _read_constants() -> None:
    """Have Hypothesis read those of all modules, as it does before it tries the first property."""
    from hypothesis import given  # noqa: PLC0415  # pytest loads it as a plugin
    from hypothesis import strategies as st  # noqa: PLC0415

    given(st.none())(lambda _nothing: None)()


def _load(tests: Sequence[str]) -> None:
    """Have pytest load the tests; a test that cannot be loaded is told by each process later."""
    own = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    off = ("cacheprovider", "rerunfailures")  # these would make a folder, and a thread
    options = ["--collect-only", "-qq", "-n0", *(f"-pno:{name}" for name in off)]
    pytest.main([*options, *tests], [_NoTests()])
    _read_constants()
    sys.stdout.flush()
    for number, kept in zip((1, 2), own, strict=True):
        os.dup2(kept, number)
    for descriptor in (*own, nowhere):
        os.close(descriptor)


def main() -> None:
    """Load the tests, then start processes as asked."""
    *tests, asked, _ = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _load(tests)
    gc.collect()
    gc.freeze()
    run(begun(socket.socket(fileno=int(asked))).arguments[2:])


if __name__ == "__main__":
    main()
