"""Time limits that end a little later if this process was stopped meanwhile.

A process that was stopped finds all its limits over when it goes on, while the answers that it
waits for lie in its sockets, or come from a process that was stopped as well. So a limit that the
loop reaches late is extended once by a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

import trio

# A loop that is later than this at a limit was stopped or starved.
LATE_S = 0.05
# Enough to read what has arrived, and to hear a process that goes on at the same moment.
MOMENT_S = 0.25


class _Limits(trio.abc.Instrument):
    """The limits of one loop. Trio calls it before it cancels overdue scopes."""

    def __init__(self) -> None:
        self.scopes: set[trio.CancelScope] = set()
        self._looked_at = inf

    def after_io_wait(self, timeout: float) -> None:
        now, before = trio.current_time(), self._looked_at
        self._looked_at = now
        if now - before <= LATE_S:
            return
        for scope in [scope for scope in self.scopes if scope.deadline < now - LATE_S]:
            self.scopes.remove(scope)
            scope.deadline = now + MOMENT_S


_limits: trio.lowlevel.RunVar[_Limits] = trio.lowlevel.RunVar("dledger_limits")


@contextmanager
def patient_limit(limit_s: float) -> Iterator[trio.CancelScope]:
    """Cancel the block after `limit_s` seconds, as `trio.move_on_after` does; at once if negative.

    If this process was stopped until the limit was long over, the block has MOMENT_S more.
    """
    try:
        limits = _limits.get()
    except LookupError:
        limits = _Limits()
        _limits.set(limits)
        trio.lowlevel.add_instrument(limits)
    with trio.move_on_after(max(limit_s, 0.0)) as scope:
        limits.scopes.add(scope)
        try:
            yield scope
        finally:
            limits.scopes.discard(scope)
