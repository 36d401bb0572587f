"""The tasks that keep the key index and answer searches."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from broker.log.one_by_one import failure
from broker.messages.state import Messages
from broker.query.indexing import KeyIndexing
from broker.query.searches import Search, Searches
from broker.serving.member import Member
from broker.store.key_index import KeyIndex
from dledger import DiskFailed
from dledger.waits.blocking_work import in_a_thread
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# Indexing so many takes up to a millisecond in a new file of the index, whose slots are read for
# the first time.
UNITS_AT_ONCE: Final = 64

# The rest between two such runs. While the leader is busy, clients should not notice the index: it
# takes a fiftieth of a core, 1 600 messages a second; else a seventh, 11 000 messages a second. If
# it is too far behind, a third.
BUSY_REST_S: Final = 0.04
CALM_REST_S: Final = 0.005
BEHIND_REST_S: Final = 0.002

# A busy leader uses more than this share of a core for other work.
BUSY_SHARE: Final = 0.1

# Beyond this the index is too far behind. The index does not rest for a search, so one or two
# searches bring a leader's up to date. A follower answers no searches; if it becomes leader with so
# much to index, it refuses searches for half a minute.
MAX_BEHIND_BYTES: Final = 512 * 1024 * 1024
MAX_FOLLOWER_BEHIND_BYTES: Final = 2 * 1024 * 1024 * 1024

# The rest when the index is up to date, or has to wait for damaged queues.
LOOK_S: Final = 0.2

# The index is synced at least so often. The next start indexes later messages again, which takes a
# second per 100 000 messages. So many heads of slots take about 10 MB of memory.
SYNC_S: Final = 60.0
SYNC_HEADS: Final = 100_000

# The pause after the disk has failed.
RETRY_S: Final = 10.0


class _Pace:
    """Measures the other work of this process between two runs of the index.

    `is_busy`: whether there was much before the last run.
    """

    def __init__(self) -> None:
        self._rested_at = time.perf_counter()
        self._used_then = time.process_time()
        self.is_busy = False

    @contextmanager
    def working(self) -> Iterator[None]:
        """Enclose a run of the index, between two rests."""
        rested = time.perf_counter() - self._rested_at
        # Read once per run, because reading a process's processor time is expensive.
        used, began_at = time.process_time(), time.perf_counter()
        self.is_busy = used - self._used_then > rested * BUSY_SHARE
        yield
        self._rested_at = time.perf_counter()
        self._used_then = used + self._rested_at - began_at  # a run never waits


class IndexTasks:
    """Keeps the index of one member, and answers searches."""

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
        self._member = member
        self._queues = member.machine.queues
        self._pace = _Pace()
        self._messages = messages
        self._advanced = trio.lowlevel.ParkingLot()
        self._wanted = trio.lowlevel.ParkingLot()
        self._synced_at = 0.0
        self._synced_to = 0
        self._dropped_before = 0
        searches.on_added = self._wake

    def _wake(self) -> None:
        self._wanted.unpark_all()

    async def keep(self) -> None:
        """Fill the index, forever."""
        try:
            while True:
                try:
                    await self._fill()
                except DiskFailed as error:
                    _log.error("the key index rests for %d s: %s", RETRY_S, quoted(error))
                    await trio.sleep(RETRY_S)
        finally:
            self._index.close()

    async def _fill(self) -> None:
        """Open the index and fill it. Raises DiskFailed."""
        self._index.open()
        self._indexing.begin()
        self._synced_at, self._synced_to = trio.current_time(), self._index.covered
        while True:
            if self._queues.damaged or not self._step():
                await self._rest(LOOK_S)
            else:
                self._advanced.unpark_all()
                if self._searches.waiting:
                    await trio.lowlevel.checkpoint()
                elif self._indexing.is_sweeping:
                    await self._rest(self._rest_s())
                else:
                    await self._rest(LOOK_S)
            if self._is_sync_due():
                await self._sync()
            if self._messages.kept_position != self._dropped_before:
                self._dropped_before = self._messages.kept_position
                self._index.drop_before(self._dropped_before)

    def _step(self) -> bool:
        with self._pace.working():
            return self._indexing.step(UNITS_AT_ONCE)

    def _rest_s(self) -> float:
        leads = self._member.node.is_ready_leader
        bound = MAX_BEHIND_BYTES if leads else MAX_FOLLOWER_BEHIND_BYTES
        if self._indexing.behind_bytes > bound:
            return BEHIND_REST_S
        return CALM_REST_S if leads and not self._pace.is_busy else BUSY_REST_S

    async def _rest(self, rest_s: float) -> None:
        """Rest, but no longer than until a search arrives."""
        with trio.move_on_after(rest_s):
            if not self._searches.waiting:
                await self._wanted.park()
            await trio.sleep(BEHIND_REST_S)  # damaged queues may have to be mended first

    def _is_sync_due(self) -> bool:
        return self._index.covered != self._synced_to and (
            self._index.unsynced >= SYNC_HEADS or trio.current_time() - self._synced_at >= SYNC_S
        )

    async def _sync(self) -> None:
        sync = self._index.begin_sync()
        await in_a_thread(sync.run)
        self._index.end_sync()
        self._synced_at, self._synced_to = trio.current_time(), sync.covered

    async def answer(self) -> None:
        """Answer searches, forever."""
        while True:
            while not self._searches.waiting:
                await self._wanted.park()
            await trio.lowlevel.checkpoint()
            if self._searches.waiting:
                search = self._searches.waiting[0]
                await self._catch_up(search)
                # It may have been answered or dropped while the index caught up.
                if self._searches.waiting and self._searches.waiting[0] is search:
                    self._searches.waiting.popleft()
                    await self._answer(search)
                del search  # frees it while the task waits

    async def _catch_up(self, search: Search) -> None:
        """Wait until the index has what the search needs, or until its deadline."""
        with trio.move_on_at(search.deadline):
            while self._index.covered < search.position:
                await self._advanced.park()

    async def _answer(self, search: Search) -> None:
        try:
            for _ in self._searches.answering(search):
                await trio.lowlevel.checkpoint()
        except DiskFailed as error:
            _log.error("the key index cannot be read: %s", quoted(error))
            self._searches.failed(search)
        except Exception as error:
            failure("answering a search", error)
            self._searches.failed(search)
