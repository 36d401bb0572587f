"""The trio loop that an object belongs to; in any other, nothing would wake what waits for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import get_ident

import trio

# How often this process has come from a fork: a loop that a fork has copied is another loop.
_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603 - there is one process
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class HomeLoop:
    """The loop in which this was made.

    What belongs to it calls `end` before the loop ends, and is checked at each call of its users.

    Args:
        error: makes the error of calls elsewhere.
        closed: makes the error of calls after `end`.

    Attributes:
        token: of the loop.
        is_over: whether what belongs to the loop is closed.
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
        """What belongs to the loop is closed: `check` tells from now on."""
        self.is_over = True

    def check(self) -> None:
        """Raise the error in another loop, another thread, or a process that was forked since, and
        that of closed things after the end.
        """
        if self.is_over:
            if self._closed is not None:
                raise self._closed()
            is_home = self._is_running()
        else:  # the loop is still there, and a thread runs one at a time: three times as fast
            is_home = get_ident() == self._thread
        if not is_home or self._forks != _forks:
            raise self._error()

    def _is_running(self) -> bool:
        try:
            return trio.lowlevel.current_trio_token() is self.token
        except RuntimeError:  # no loop runs in this thread
            return False
