"""Pops from one queue, or from any queue of a group of brokers: one request after the other."""

import logging
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from dledger_mq.client_metrics import ReportedMetrics
from dledger_mq.connection.calls import (
    LONGEST_PAUSE_S,
    is_news,
    master_of,
    pause_s,
    while_it_leads,
)
from dledger_mq.connection.client import Client
from dledger_mq.connection.side_work import Reading, read_beside
from dledger_mq.connection.this_process import now_ms
from dledger_mq.errors import MessagingError, RequestRefused
from dledger_mq.popping import pop_requests
from dledger_mq.popping.held_messages import HeldMessages
from dledger_mq.popping.pop_options import PopOptions
from dledger_mq.popping.popped import NOTHING_CODES, POP_CODES, PopResult, read_pop_reply
from dledger_mq.received_message import BodyCompressed
from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.message_queue import MessageQueue
from remoting.message.errors import MessageMalformed
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# RocketMQ's value: how long a broker holds a pop that finds nothing.
HOLD_MS: Final = 15_000
POP_TIMEOUT_S: Final = 30.0

# The least time between pops of a broker that finds nothing and does not hold the request.
_LEAST_PAUSE_S: Final = 0.1


class PopReader:
    """Pops from one queue, or from any queue of a broker if its id is -1.

    `beside` runs work in the background. `on_messages` is called with each result, also after
    `stop`, when an answer comes late. `positioned` is set once a broker has answered: the group has
    begun.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        queue: MessageQueue,
        wanted: SubscriptionData,
        held: HeldMessages,
        options: PopOptions,
        *,
        beside: Callable[[Callable[[], Awaitable[None]]], None],
        is_ordered: bool,
        from_first: bool,
        on_messages: Callable[[PopResult], None],
        metrics: ReportedMetrics | None,
    ) -> None:
        self.queue = queue
        self.positioned = trio.Event()
        self._client = client
        self._group = group
        self._wanted = wanted
        self._held = held
        self._options = options
        self._beside = beside
        self._is_ordered = is_ordered
        self._from_first = from_first
        self._on_messages = on_messages
        self._metrics = metrics
        self._scope = trio.CancelScope()
        self._attempt_id = ""
        # A probe of a silent broker must name a queue that exists.
        self._asked_about = MessageQueue(queue.topic, queue.broker_name, max(queue.queue_id, 0))

    def stop(self) -> None:
        self._scope.cancel()

    async def run(self) -> None:
        with self._scope:
            failures = 0
            while True:
                reserved = await self._held.reserve_room(self._options.pop_batch)
                try:
                    await self._pop(reserved, refresh=failures > 0)
                    failures = 0
                except (MessagingError, RemotingError) as error:
                    failures += 1
                    await self._pause(error, failures)
                finally:
                    self._held.end_reservation(reserved)

    async def _pop(self, most: int, *, refresh: bool) -> None:
        address = await master_of(self._client, self.queue, refresh=refresh)
        if self._is_ordered and not self._attempt_id:
            self._attempt_id = uuid.uuid4().hex
        hold = HOLD_MS if self.positioned.is_set() else 0
        asked = trio.current_time()
        command = pop_requests.pop(
            self._group,
            self.queue,
            self._wanted,
            most=most,
            invisible_ms=round(self._options.invisible_s * 1000),
            hold_ms=hold,
            now_ms=now_ms(),
            from_first=self._from_first,
            attempt_id=self._attempt_id,
        )
        outcomes: list[Command | MessagingError | RemotingError] = []
        answered = trio.Event()

        def report(outcome: Command | MessagingError | RemotingError) -> None:
            outcomes.append(outcome)
            answered.set()

        def settle(outcome: Command | RemotingError) -> None:
            # A late answer may hold messages, too, although the call of `_pop` has ended.
            if not isinstance(outcome, Command) or outcome.code != ResponseCode.SUCCESS:
                report(outcome)
                return
            read = self._reading(outcome, asked)
            try:
                self._hand_on(outcome, read(inflates=False))
            except BodyCompressed:
                self._beside(partial(self._inflate, outcome, read, report))
            except (MessagingError, RemotingError) as error:
                report(error)
            else:
                report(outcome)

        self._client.remoting.request_nowait(address, command, settle, POP_TIMEOUT_S)
        with while_it_leads(self._client, self._asked_about, address):
            await answered.wait()
        if not outcomes:
            return  # the route has changed
        outcome = outcomes[0]
        if isinstance(outcome, MessagingError | RemotingError):
            raise outcome
        if outcome.code not in POP_CODES:
            raise RequestRefused(address, "pop", outcome.code, outcome.remark)
        self._attempt_id = ""
        self.positioned.set()
        if outcome.code == ResponseCode.POLLING_FULL:
            await trio.sleep(LONGEST_PAUSE_S)
        elif outcome.code in NOTHING_CODES and hold:
            took_s = trio.current_time() - asked
            await trio.sleep(max(_LEAST_PAUSE_S - took_s, 0.0))

    def _reading(self, reply: Command, asked: float) -> Reading[PopResult]:
        """Return what decodes a reply that has just come."""
        return partial(
            read_pop_reply,
            reply,
            self.queue,
            self._wanted,
            asked=asked,
            came=trio.current_time(),
            now_ms=now_ms(),
        )

    async def _inflate(
        self,
        reply: Command,
        read: Reading[PopResult],
        report: Callable[[Command | MessagingError | RemotingError], None],
    ) -> None:
        """Decode a reply with compressed bodies and hand its messages on; then call `report`."""
        try:
            self._hand_on(reply, await read_beside(self._client.side_work, read))
        except (MessagingError, RemotingError) as error:
            report(error)
        else:
            report(reply)

    def _hand_on(self, reply: Command, result: PopResult) -> None:
        if result.unreadable:
            _log.error(
                "%s: %d popped messages are unreadable; they come again, and become dead letters",
                self.queue,
                result.unreadable,
            )
        if self._metrics is not None and result.messages:
            count = len(result.messages)
            self._metrics.pulled(
                self._group,
                result.messages[0].message.queue,
                count,
                len(reply.body),
                result.rest + count,
            )
        self._on_messages(result)

    async def _pause(self, error: MessagingError | RemotingError, failures: int) -> None:
        if is_news(error, failures):
            level = logging.WARNING if isinstance(error, MessageMalformed) else logging.INFO
            _log.log(level, "%s not popped from, trying again: %s", self.queue, error)
        await trio.sleep(pause_s(failures))
