"""The trio loop that an object belongs to. In any other loop, nothing would wake its waits."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import get_ident

import trio

# The number of forks in this process's past: the copy of a loop after a fork is another loop.
_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603 - there is one process
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class HomeLoop:
    """The loop in which this object was made.

    Its owner calls `end` before the loop ends, and `check` at each call of its users.

    Args:
        error: makes the error of calls elsewhere.
        closed: makes the error of calls after `end`.

    Attributes:
        token: of the loop.
        is_over: whether `end` was called.
    """

    def __init__(
        self, error: Callable[[], Exception], closed: Callable[[], Exception] | None = None
    ) -> None:
        self._error = error
        self._closed = closed
        self.token = trio.lowlevel.current_trio_token()
        self._forks = _forks
        self._thread = get_ident()
        self.is_over = False

    def end(self) -> None:
        self.is_over = True

    def check(self) -> None:
        """Raise if this is another loop, another thread, or a process that was forked since.

        Raises `closed()` after the end.
        """
        if self.is_over:
            if self._closed is not None:
                raise self._closed()
            is_home = self._is_running()
        else:  # the loop still runs, and a thread runs one loop at a time: three times as fast
            is_home = get_ident() == self._thread
        if not is_home or self._forks != _forks:
            raise self._error()

    def _is_running(self) -> bool:
        try:
            return trio.lowlevel.current_trio_token() is self.token
        except RuntimeError:  # no loop runs in this thread
            return False
