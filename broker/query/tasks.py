"""The tasks that keep the key index, and answer from it."""

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

# Messages that are indexed at once: up to a millisecond, as their places in a new file of the index
# are read for the first time.
UNITS_AT_ONCE: Final = 64

# How long the index rests between two such runs. While the leader has other things to do, clients
# should feel nothing of it: it takes a fiftieth of a core, 1 600 messages a second; else a seventh,
# 11 000 messages a second. If it is too far behind, a third.
BUSY_REST_S: Final = 0.04
CALM_REST_S: Final = 0.005
BEHIND_REST_S: Final = 0.002

# A leader with other things to do uses more than this much of a core for them.
BUSY_SHARE: Final = 0.1

# What is too far. So far a leader's index is brought up by one search or two, which it does not
# rest for. A follower answers no searches and is never in a hurry; when it becomes leader with so
# much to index, searches are told for half a minute to come again.
MAX_BEHIND_BYTES: Final = 512 * 1024 * 1024
MAX_FOLLOWER_BEHIND_BYTES: Final = 2 * 1024 * 1024 * 1024

# How long it rests when it has come up to the log, or there is something that it has to wait for.
LOOK_S: Final = 0.2

# When the index is made durable. What came after that is indexed again by the next start, which
# takes a second per 100 000 messages; so many heads of slots take about 10 MB of memory.
SYNC_S: Final = 60.0
SYNC_HEADS: Final = 100_000

# After the disk has failed.
RETRY_S: Final = 10.0


class _Pace:
    """How much else this process does between two runs of the index.

    Attributes:
        is_busy: whether it had much to do before the last run.
    """

    def __init__(self) -> None:
        self._rested_at = time.perf_counter()
        self._used_then = time.process_time()
        self.is_busy = False

    @contextmanager
    def working(self) -> Iterator[None]:
        """A run of the index, between two rests."""
        rested = time.perf_counter() - self._rested_at
        # Read once a run: the processor time of a process is dear to ask for.
        used, began_at = time.process_time(), time.perf_counter()
        self.is_busy = used - self._used_then > rested * BUSY_SHARE
        yield
        self._rested_at = time.perf_counter()
        self._used_then = used + self._rested_at - began_at  # the run has only computed


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
        """Fill the index, for ever."""
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
        """Rest, but no longer than until a search comes."""
        with trio.move_on_after(rest_s):
            if not self._searches.waiting:
                await self._wanted.park()
            await trio.sleep(BEHIND_REST_S)  # queues have to be mended before it is answered

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
        """Answer searches, for ever."""
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
                del search  # the next one may come much later

    async def _catch_up(self, search: Search) -> None:
        """Wait until the index has what the search is for, or until its time is over."""
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
