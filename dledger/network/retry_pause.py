"""How long to wait before another attempt to connect."""

from __future__ import annotations

import random

import trio

# A pause is a random part of its length, from this share on. So callers that lost the same peer at
# the same moment do not dial it in step, and none pauses longer than its limit, on which members
# rely that wait for calls.
LEAST_SHARE = 0.5

# The pause after a connection that had been open, or when there is news of the peer. It is short:
# the next attempt shows whether the peer's process runs. A process that is being killed may close
# its listening socket last, and so accept one more connection that it breaks at once.
LEAST_PAUSE_S = 0.01


class RetryPause:
    """Pauses between attempts: each is about twice as long as the last; news of the peer ends it.

    A connection that was open for at least the longest pause is dialled again at once when it ends:
    if that is refused, the peer's process has ended. One that breaks again and again is not.
    """

    def __init__(self, first_s: float, last_s: float) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._pause_s = first_s
        self._stands_since: float | None = None
        self._scope = trio.CancelScope()

    def connected(self) -> None:
        """The attempt succeeded."""
        self._stands_since = trio.current_time()
        self._pause_s = self._first_s

    async def wait(self) -> None:
        """Wait until the next attempt, after one that failed or a connection that ended."""
        now, since = trio.current_time(), self._stands_since
        self._stands_since = None
        if since is not None and now - since >= self._last_s:
            pause_s, self._pause_s = 0.0, LEAST_PAUSE_S
        else:
            pause_s = self._pause_s * random.uniform(LEAST_SHARE, 1.0)
            self._pause_s = min(2 * self._pause_s, self._last_s)
        with trio.CancelScope(deadline=now + pause_s) as self._scope:
            await trio.sleep_forever()

    def cut_short(self) -> None:
        """End a running pause soon: there is news of the peer."""
        soon = trio.current_time() + LEAST_PAUSE_S
        self._scope.deadline = min(self._scope.deadline, soon)
