"""The tasks that keep the key index, and answer from it."""

import logging
from typing import Final

import trio

from broker.messages.state import Messages
from broker.query.indexing import KeyIndexing
from broker.query.searches import Search, Searches
from broker.serving.member import Member
from broker.store.key_index import KeyIndex
from dledger import DiskFailed

_log = logging.getLogger(__name__)

# Messages that are indexed at once: about a millisecond.
UNITS_AT_ONCE: Final = 100

# How long the index rests between two such runs when the process has other work, so that clients
# feel little of it; a process is busy when a rest of 1 ms takes 0.5 ms longer.
BUSY_REST_SECONDS: Final = 0.02
REST_SECONDS: Final = 0.001
LATE_SECONDS: Final = 0.0005

# Beyond this the index no longer steps back behind other work: else it would never come near.
MAX_BEHIND_BYTES: Final = 1024 * 1024 * 1024

# How often it is looked whether there is something to do.
LOOK_SECONDS: Final = 0.1

# When the index is made durable. What came after that is indexed again by the next start, which
# takes a second per 100 000 messages; so many heads of slots take about 10 MB of memory.
SYNC_SECONDS: Final = 60.0
SYNC_HEADS: Final = 100_000

# After the disk has failed.
RETRY_SECONDS: Final = 10.0


class IndexTasks:
    """Keeps the index of one member, and answers searches in it.

    Args:
        index: the index; opened here.
        indexing: fills it.
        searches: those that wait.
        member: the member.
        messages: says what of the log is kept.
    """

    def __init__(
        self,
        index: KeyIndex,
        indexing: KeyIndexing,
        searches: Searches,
        member: Member,
        messages: Messages,
    ) -> None:
        self._index = index
        self._indexing = indexing
        self._searches = searches
        self._queues = member.machine.queues
        self._messages = messages
        self._advanced = trio.Event()
        self._wanted = trio.Event()
        self._synced_at = 0.0
        self._synced_to = 0
        self._dropped_before = 0
        searches.on_added = self._wake

    def _wake(self) -> None:
        self._wanted.set()

    async def keep(self) -> None:
        """Fill the index, for ever."""
        try:
            while True:
                try:
                    await self._fill()
                except DiskFailed as error:
                    _log.error("the key index rests for %d s: %s", RETRY_SECONDS, error)
                    await trio.sleep(RETRY_SECONDS)
        finally:
            self._index.close()

    async def _fill(self) -> None:
        """Open the index and fill it. Raises DiskFailed."""
        self._index.open()
        self._indexing.begin()
        self._synced_at, self._synced_to = trio.current_time(), self._index.covered
        while True:
            if self._queues.damaged or not self._indexing.step(UNITS_AT_ONCE):
                with trio.move_on_after(LOOK_SECONDS):
                    await self._wanted.wait()
                    await trio.sleep(REST_SECONDS)  # a search may wait for queues to be mended
            else:
                advanced, self._advanced = self._advanced, trio.Event()
                advanced.set()
                await self._rest()
            if self._is_sync_due():
                await self._sync()
            if self._messages.kept_position != self._dropped_before:
                self._dropped_before = self._messages.kept_position
                self._index.drop_before(self._dropped_before)

    async def _rest(self) -> None:
        if self._searches.waiting:
            await trio.lowlevel.checkpoint()
            return
        before = trio.current_time()
        await trio.sleep(REST_SECONDS)
        is_late = trio.current_time() - before > REST_SECONDS + LATE_SECONDS
        if is_late and self._indexing.behind_bytes < MAX_BEHIND_BYTES:
            await trio.sleep(BUSY_REST_SECONDS)

    def _is_sync_due(self) -> bool:
        return self._index.covered != self._synced_to and (
            self._index.unsynced >= SYNC_HEADS
            or trio.current_time() - self._synced_at >= SYNC_SECONDS
        )

    async def _sync(self) -> None:
        sync = self._index.begin_sync()
        await trio.to_thread.run_sync(sync.run)
        self._index.end_sync()
        self._synced_at, self._synced_to = trio.current_time(), sync.covered

    async def answer(self) -> None:
        """Answer searches, for ever."""
        while True:
            if not self._searches.waiting:
                self._wanted = trio.Event()
                await self._wanted.wait()
            await trio.lowlevel.checkpoint()
            if self._searches.waiting:
                search = self._searches.waiting[0]
                await self._catch_up(search)
                # It may have been answered or dropped while the index caught up.
                if self._searches.waiting and self._searches.waiting[0] is search:
                    self._searches.waiting.popleft()
                    await self._answer(search)

    async def _catch_up(self, search: Search) -> None:
        """Wait until the index has what the search is for, or until its time is over."""
        with trio.move_on_at(search.deadline):
            while self._index.covered < search.position:
                await self._advanced.wait()

    async def _answer(self, search: Search) -> None:
        try:
            for _ in self._searches.answering(search):
                await trio.lowlevel.checkpoint()
        except DiskFailed as error:
            _log.error("the key index cannot be read: %s", error)
            self._searches.failed(search)
