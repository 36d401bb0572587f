"""The iterators of a node. They hold no resources: a loop may be left early."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import trio

from dledger.entry import Entry
from dledger.errors import OutsideLog
from dledger.status import RoleChange
from dledger.waits.progress import Progress


class CommittedEntries:
    """All committed entries from one index on, and then each new one, without end.

    Raises NodeClosing when the node stops, and OutsideLog if the log no longer has the next entry.
    """

    def __init__(
        self,
        start: int,
        fetch: Callable[[int], Sequence[Entry]],
        wait: Callable[[int], Awaitable[None]],
    ) -> None:
        self._next = start
        self._fetch = fetch
        self._wait = wait
        self._ready: deque[Entry] = deque()

    def __aiter__(self) -> CommittedEntries:
        return self

    async def __anext__(self) -> Entry:
        if not self._ready:
            await trio.lowlevel.checkpoint()
            await self._wait(self._next)
            entries = self._fetch(self._next)
            if not entries or entries[0].index != self._next:
                # Retention has dropped the next entry.
                first, last = (entries[0].index, entries[-1].index) if entries else (-1, -1)
                raise OutsideLog("entry", self._next, first, last)
            self._ready.extend(entries)
        entry = self._ready.popleft()
        self._next = entry.index + 1
        return entry


class RoleChanges:
    """The present role, and then each change. A slow reader skips to the latest.

    Raises NodeClosing when the node stops.
    """

    def __init__(self, current: Callable[[], RoleChange], changed: Progress) -> None:
        self._current = current
        self._changed = changed
        self._seen: RoleChange | None = None

    def __aiter__(self) -> RoleChanges:
        return self

    async def __anext__(self) -> RoleChange:
        await trio.lowlevel.checkpoint()
        while self._current() == self._seen:
            await self._changed.wait()
        self._seen = self._current()
        return self._seen
