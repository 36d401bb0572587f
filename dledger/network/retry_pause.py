"""How long to wait before another attempt to connect."""

from __future__ import annotations

import trio

# After the end of a connection that had stood, and when there is news of the other side: short,
# because it is soon known then whether a process is there. One that is being killed may close what
# it listens on last, and take a connection in between that it breaks at once.
LEAST_PAUSE_S = 0.01


class RetryPause:
    """Pauses between attempts, each twice as long as the last, and cut short when there is news.

    A connection that had stood for the longest pause and ended is dialled again at once: if that is
    refused, the process over there has ended. One that breaks again and again is not.
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
        """Wait until the next attempt: the last one failed, or what it had made has ended."""
        now, since = trio.current_time(), self._stands_since
        self._stands_since = None
        if since is not None and now - since >= self._last_s:
            pause_s, self._pause_s = 0.0, LEAST_PAUSE_S
        else:
            pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, self._last_s)
        with trio.CancelScope(deadline=now + pause_s) as self._scope:
            await trio.sleep_forever()

    def cut_short(self) -> None:
        """There is news of the other side: try soon, if this is a pause."""
        soon = trio.current_time() + LEAST_PAUSE_S
        self._scope.deadline = min(self._scope.deadline, soon)
