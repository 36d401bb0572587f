"""The trio loop that an object belongs to; in any other, nothing would wake what waits for it."""

from __future__ import annotations

import os
from collections.abc import Callable

import trio

# How often this process has come from a fork: a loop that a fork has copied is another loop.
_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603 - there is one process
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class HomeLoop:
    """The loop in which this was made.

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
        self.is_over = False

    def end(self) -> None:
        """What belongs to the loop is closed: `check` tells from now on."""
        self.is_over = True

    def check(self) -> None:
        """Raise the error in another loop, another thread, or a process that was forked since, and
        that of closed things after the end.
        """
        if self.is_over and self._closed is not None:
            raise self._closed()
        try:
            is_home = trio.lowlevel.current_trio_token() is self.token
        except RuntimeError:  # no loop runs in this thread
            is_home = False
        if not is_home or self._forks != _forks:
            raise self._error()
