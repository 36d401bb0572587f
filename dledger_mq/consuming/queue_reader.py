"""Reads one queue: finds the first offset, then sends one long pull after the other."""

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from dledger_mq.client_metrics import ReportedMetrics
from dledger_mq.connection import requests
from dledger_mq.connection.calls import (
    NOT_NOW_CODES,
    call_master,
    is_news,
    master_of,
    pause_s,
    while_it_leads,
)
from dledger_mq.connection.client import Client
from dledger_mq.connection.side_work import read_beside
from dledger_mq.consuming.back_off import BackOff
from dledger_mq.consuming.cached_queue import CachedQueue
from dledger_mq.consuming.offsets import Offsets, starting_offset
from dledger_mq.consuming.pulling import PULL_CODES, PullResult, PullStatus, read_pull_reply
from dledger_mq.errors import MessagingError, RequestRefused
from dledger_mq.message import ConsumeFrom
from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.message_queue import MessageQueue
from remoting.message.errors import MessageMalformed
from remoting.message.record import MessageRecord
from remoting.message.topic_names import RETRY_PREFIX
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# RocketMQ's brokerSuspendMaxTimeMillis: how long a broker holds a pull while there is no message.
HOLD_MS: Final = 15_000

# RocketMQ's timeout of a pull that may be held.
PULL_TIMEOUT_S: Final = 30.0

# After a damaged answer, messages are pulled one by one: those before the damaged one are
# delivered, and only one message is sent in vain, until the broker is repaired. The pause between
# these pulls grows up to this limit, and not each of them is logged.
LONGEST_DAMAGE_PAUSE_S: Final = 30.0
_DAMAGE_LOG_S: Final = 60.0


class QueueReader:
    """Reads one queue of a consumer.

    `on_messages` is called with new messages. Those of a retry topic are held until
    `CachedQueue.give_back` if `holds_retries`. A pull asks for `most` messages.

    Attributes:
        committed: the last committed offset, or None.
        moves: how often the broker has moved the reader to another offset.
        dropped: the queue is another member's; messages in work must not be committed.
        positioned: set once the first offset is known.
        is_leaving: the queue is about to be dropped, and no call of the listener may begin.
        holds_messages: new messages are held: they were sent back, and wait for their time.
        running: the number of the listener's calls with messages of this queue.
        resumes_at: of an ordered consumer: when the listener may be called again.
        call_scope: of an ordered consumer: of the listener's current or last call.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        queue: MessageQueue,
        wanted: SubscriptionData,
        cached: CachedQueue,
        offsets: Offsets,
        on_messages: "Callable[[QueueReader, list[ReceivedMessage]], None]",
        most: int,
        metrics: ReportedMetrics | None = None,
        holds_retries: bool = True,
    ) -> None:
        self.queue = queue
        self.cached = cached
        self.committed: int | None = None
        self.moves = 0
        self.dropped = False
        self.positioned = trio.Event()
        self.back_off = BackOff()
        self.running = 0
        self.is_leaving = False
        self.holds_messages = holds_retries and queue.topic.startswith(RETRY_PREFIX)
        self.resumes_at = -math.inf
        self.call_scope = trio.CancelScope()
        self._client = client
        self._group = group
        self._wanted = wanted
        self._offsets = offsets
        self._on_messages = on_messages
        self._most = most
        self._metrics = metrics
        self._scope = trio.CancelScope()
        self._room = trio.lowlevel.ParkingLot()
        self._no_call = trio.lowlevel.ParkingLot()
        self._log_damage_at = -math.inf
        self._damages = 0  # damaged answers in a row

    def stop_reading(self) -> None:
        """Pull no more; messages in work may still be done and committed."""
        self._scope.cancel()

    async def leave(self) -> None:
        """Pull no more, begin no call of the listener, and wait for those that run."""
        self.is_leaving = True
        self._scope.cancel()
        while self.running:
            await self._no_call.park()

    def drop(self) -> None:
        """Pull no more; messages in work must not be committed."""
        self.dropped = True
        self._scope.cancel()
        if self._metrics is not None:
            self._metrics.left(self._group, self.queue)
        self.cached.reset(self.cached.next_offset)

    def call_began(self) -> None:
        self.running += 1

    def call_ended(self) -> None:
        self.running -= 1
        if not self.running:
            self._no_call.unpark_all()

    def has_room(self) -> None:
        """Resume pulling if there is room."""
        if not self.cached.full:
            self._room.unpark_all()
        elif self.cached.total.is_full:
            self.cached.total.when_room(self.has_room)

    async def run(
        self,
        consume_from: ConsumeFrom,
        timestamp_ms: int,
        handover_s: float = 0.0,
    ) -> None:
        """Read until `drop`.

        `timestamp_ms` is for TIMESTAMP, since 1970. `handover_s` lets the member
        that read the queue until now commit before the committed offset is asked for.
        """
        with self._scope:
            await trio.sleep(handover_s)
            await self._find_start(consume_from, timestamp_ms)
            failures = 0
            while True:
                while self.cached.full:
                    self.has_room()  # called again when all queues together have room
                    await self._room.park()
                try:
                    result = await self._pull(refresh=failures > 0)
                    if result is not None:
                        await self._keep(result)
                except (MessagingError, RemotingError) as error:
                    failures += 1
                    await self._pause(error, failures)
                    continue
                failures = self._damages = 0

    async def _find_start(self, consume_from: ConsumeFrom, timestamp_ms: int) -> None:
        failures = 0
        while not self.positioned.is_set():
            try:
                offset = await starting_offset(
                    self._client, self._offsets, self.queue, consume_from, timestamp_ms
                )
            except (MessagingError, RemotingError) as error:
                failures += 1
                await self._pause(error, failures)
                continue
            self.cached.reset(offset)
            self.positioned.set()

    async def _pull(self, *, refresh: bool) -> PullResult | None:
        """Pull once; return None if the pull was abandoned because the route changed."""
        address = await master_of(self._client, self.queue, refresh=refresh)
        command = requests.pull(
            self._group,
            self.queue,
            self.cached.next_offset,
            self._wanted,
            most=1 if self._damages else self._most,
            hold_ms=HOLD_MS,
        )
        with while_it_leads(self._client, self.queue, address):
            reply = await self._client.remoting.request(address, command, PULL_TIMEOUT_S)
            if reply.code not in PULL_CODES:
                raise RequestRefused(address, "pull", reply.code, reply.remark)
            result = await read_beside(
                self._client.side_work,
                partial(read_pull_reply, reply, self.queue, self._wanted),
            )
            if self._metrics is not None:
                self._metrics.pulled(
                    self._group,
                    self.queue,
                    len(result.messages),
                    len(reply.body),
                    max(result.max_offset - self.cached.commit_offset, 0),
                )
            return result
        return None

    async def _keep(self, result: PullResult) -> None:
        if result.status is PullStatus.OFFSET_MOVED:
            if result.next_offset == self.cached.next_offset:
                # The broker names the offset that was asked for: asking at once would be a busy
                # loop.
                await trio.sleep(pause_s(1))
            _log.warning(
                "%s: offset %d is not there (the queue holds %d to %d); going on at %d",
                self.queue,
                self.cached.next_offset,
                result.min_offset,
                result.max_offset,
                result.next_offset,
            )
            self.cached.reset(result.next_offset)
            # If an administrator has reset the group, the broker has another committed offset.
            self.committed = None
            self.moves += 1
            return
        for record in result.unreadable:
            await self._send_to_dead_letters(record)
        self.cached.add(result.messages, result.next_offset, held=self.holds_messages)
        if result.messages:
            self._on_messages(self, result.messages)

    async def _send_to_dead_letters(self, record: MessageRecord) -> None:
        _log.error("%s: body at offset %d is unreadable", self.queue, record.queue_offset)
        command = requests.send_back(
            self._group,
            record.physical_offset,
            origin_message_id="",
            origin_topic=record.topic,
            most_times=0,
            delay_level=-1,
        )
        try:
            await call_master(self._client, self.queue, command, "bury an unreadable message")
        except RequestRefused as error:
            if error.code in NOT_NOW_CODES:
                raise
            _log.error("%s: offset %d is skipped: %s", self.queue, record.queue_offset, error)

    async def _pause(self, error: Exception, failures: int) -> None:
        if is_news(error, failures):
            level = logging.INFO
            if isinstance(error, MessageMalformed) and trio.current_time() >= self._log_damage_at:
                self._log_damage_at = trio.current_time() + _DAMAGE_LOG_S
                level = logging.WARNING
            _log.log(level, "%s not read, trying again: %s", self.queue, error)
        wait_s = pause_s(failures)
        if isinstance(error, MessageMalformed):
            self._damages += 1
            wait_s = min(wait_s * 2 ** (self._damages - 1), LONGEST_DAMAGE_PAUSE_S)
        await trio.sleep(wait_s)
