"""The consumer that pops: it holds no queue, and acknowledges each message."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import trio

from dledger.wake_up import WakeUp
from dledger_mq.argument_checks import check_kind
from dledger_mq.client_metrics import ClientMetrics, reported
from dledger_mq.connection.calls import LONGEST_PAUSE_S
from dledger_mq.connection.client import Client, ConsumerEntry
from dledger_mq.connection.client_use import ClientUse
from dledger_mq.connection.lifetime import Background, during_block
from dledger_mq.connection.running_info import RunningInfo
from dledger_mq.connection.this_process import now_ms
from dledger_mq.connection.topic_route import ClientRoute
from dledger_mq.consuming.assignment import MEMBERS_TIMEOUT_S
from dledger_mq.consuming.conditions import check_conditions
from dledger_mq.consuming.direct_calls import DirectCalls
from dledger_mq.consuming.listener_calls import ListenerCalls
from dledger_mq.consuming.subscription import Sql, group_subscriptions
from dledger_mq.errors import MessagingError
from dledger_mq.listener import Listener, check_listener
from dledger_mq.message import check_group
from dledger_mq.popping import pop_requests
from dledger_mq.popping.held_messages import HeldMessages
from dledger_mq.popping.pop_acknowledging import PopAcknowledging
from dledger_mq.popping.pop_listening import PopListening
from dledger_mq.popping.pop_options import PopOptions
from dledger_mq.popping.pop_reader import PopReader
from dledger_mq.popping.popped import Popped, PopResult
from dledger_mq.tracing.trace_writer import open_trace, trace_topic
from remoting.bodies.assignment import decode_assigned
from remoting.bodies.heartbeat import ConsumeFromWhere, ConsumerData, ConsumeType, SubscriptionData
from remoting.bodies.message_queue import MessageQueue
from remoting.message.topic_names import RETRY_PREFIX
from remoting.net.tls_config import Tls
from remoting.wire.codes import ResponseCode
from remoting.wire.errors import RemotingError
from remoting.wire.signature import Credentials

_log = logging.getLogger(__name__)

# RocketMQ's rebalance interval; brokers also notify when members come or go.
REBALANCE_S: Final = 20.0

# For the last acknowledgements of a block that is cancelled or ends by an error.
LAST_ACKNOWLEDGEMENTS_S: Final = 1.0

_ANY_QUEUE: Final = -1


class PopConsumer:
    """Consumes the topics of a group by pops (see docs/pop.md).

    A popped message is invisible to other consumers for a time, which this consumer renews while
    the listener has it. A message that the listener consumed is acknowledged and never redelivered;
    one that it failed with is redelivered later, to any member. Members hold no queues, so there
    may be more of them than queues, and no queue moves when they come or go. The messages of a
    consumer that dies are redelivered after their invisible time.

    Args:
        group: the consumer group.
        topics: a topic, several, or a mapping of topics to tags ("TagA || TagB") or conditions
            (`Sql`).
        listener: gets messages of one queue; they are redelivered if it returns RETRY or raises an
            error.
        nameservers: "host:port" each, or one text with semicolons between them, for a client of its
            own.
        client: an open client to share instead.
        tls: TLS with all name servers and brokers, for a client of its own.
        credentials: the user that a client of its own is, where brokers have access control.
        ordered: whether the messages of a queue are consumed one after the other. All members of a
            group must agree.
        assigned: whether brokers assign the queues that this member pops from (as administrators
            set it by `Admin.set_request_mode`); else it pops from all queues.
        from_first: whether a group that never consumed begins with the first message there is; else
            with those that are sent from now on.
        options: numbers and limits.
        metrics: receives each pop, and the outcome of messages.
        trace: whether the consumption of messages is written to RocketMQ's trace topic, or the name
            of another trace topic. See `Admin.trace`.
    """

    def __init__(
        self,
        group: str,
        topics: str | Sequence[str] | Mapping[str, str | Sql],
        listener: Listener,
        *,
        nameservers: str | Sequence[str] = (),
        client: Client | None = None,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        ordered: bool = False,
        assigned: bool = False,
        from_first: bool = False,
        options: PopOptions | None = None,
        metrics: ClientMetrics | None = None,
        trace: bool | str = False,
    ) -> None:
        check_group(group)
        check_listener(listener)
        if options is not None:
            check_kind("PopConsumer", "options", options, PopOptions, "PopOptions(...)")
        self.group = group
        self._topics = topics
        self._use = ClientUse(
            "consumer", "PopConsumer", nameservers, client, group, tls, credentials
        )
        self._client, self._lifetime = self._use.client, self._use.lifetime
        self._is_ordered = ordered
        self._is_assigned = assigned
        self._from_first = from_first
        self._options = options or PopOptions()
        self._metrics = reported(metrics)
        self._trace_topic = trace_topic(trace)
        watch, slow_s = self._client.listener_watch, self._options.slow_call_s
        self._calls = ListenerCalls(group, listener, watch, slow_s, self._metrics)
        self._listening = PopListening(self._calls, self._options, is_ordered=ordered)
        self._direct = DirectCalls(self._calls, is_ordered=ordered)
        self._wanted: dict[str, SubscriptionData] = {}
        self._readers: dict[MessageQueue, list[PopReader]] = {}
        self._seen: set[MessageQueue] = set()  # of which the metrics know
        self._nursery: Background | None = None
        self._held: HeldMessages | None = None
        self._acknowledging: PopAcknowledging | None = None
        self._rebalance_wanted = WakeUp()
        self._queues_known = trio.Event()
        self._is_stopped = False
        self._opened_ms = 0

    async def __aenter__(self) -> "PopConsumer":
        """Join the group, and begin to pop.

        Raises:
            OpenedTwice: it was opened before.
            ClientClosed: the shared client is not open.
            GroupInUse: the shared client has a consumer of this group.
            InvalidMessage: a topic's name is not legal, or there is none.
            InvalidCondition: a broker cannot filter by a condition (`Sql`).
        """
        await self._use.open(self._work)
        return self

    async def __aexit__(self, *raised: Any) -> None:
        """Stop popping, let listeners finish, acknowledge, give other messages back, leave the
        group.

        If an error ends the block, listeners are cancelled, except in threads, which cannot be
        interrupted. Messages that they have consumed are acknowledged, all others are redelivered.
        """
        await self._use.close(*raised)

    @asynccontextmanager
    async def _work(self) -> AsyncIterator[None]:
        client, lifetime = self._client, self._lifetime
        options, listening = self._options, self._listening
        self._opened_ms = now_ms()
        self._wanted = group_subscriptions(self.group, self._topics, now_ms())
        await check_conditions(client, self.group, self._wanted.values())
        client.add_consumer(
            ConsumerEntry(
                self._data(), self._rebalance_wanted.set, self._running_info, self._direct.asked
            )
        )
        async with AsyncExitStack() as stack:
            self._calls.trace = await open_trace(stack, self._use, self._trace_topic)
            nursery = await stack.enter_async_context(Background(lifetime, until_the_end=True))
            stack.callback(self._forget)
            calls = await stack.enter_async_context(Background(lifetime))  # of the listener
            self._nursery = nursery
            self._direct.begin(calls)
            acknowledging = PopAcknowledging(client, self.group, nursery, self._settle)
            held = HeldMessages(
                client,
                self.group,
                options,
                nursery,
                listening.settled,
                acknowledging.add,
            )
            self._acknowledging, self._held = acknowledging, held
            client.routes.watch(self._route_changed)
            for _ in range(options.concurrency):
                calls.start_soon(listening.work, held, acknowledging.add)
            nursery.start_soon(held.renew_forever)
            nursery.start_soon(self._rebalance_forever)
            leave_s = LAST_ACKNOWLEDGEMENTS_S
            try:
                try:
                    yield
                finally:
                    self._stop_popping()
                await listening.stop(options.close_timeout_s)
                leave_s = max(leave_s, options.close_timeout_s)
            finally:  # the block may be cancelled
                await calls.end()
                with trio.move_on_after(leave_s, shield=True):
                    await acknowledging.drain()
                with trio.move_on_after(LAST_ACKNOWLEDGEMENTS_S, shield=True):
                    await held.give_back_all()
                await self._leave()

    def _stop_popping(self) -> None:
        self._is_stopped = True
        self._client.routes.unwatch(self._route_changed)
        for reader in self._all_readers():
            reader.stop()
        self._listening.stop_handing_out()

    async def _leave(self) -> None:
        if self._metrics is not None:
            for queue in self._seen:
                self._metrics.left(self.group, queue)
        await self._client.remove_consumer(self.group)

    def _forget(self) -> None:
        self._readers = {}
        self._nursery = None

    @during_block
    async def ready(self) -> None:
        """Wait until brokers have answered: a new group gets every message sent after this.

        Raises:
            ClientClosed: the consumer is not open, or ends meanwhile.
        """
        await self._queues_known.wait()
        for reader in list(self._all_readers()):
            await reader.positioned.wait()

    def queues(self) -> list[MessageQueue]:
        """Return the queues that this member pops from; the id -1 is any queue of a broker."""
        return sorted(self._readers)

    def _data(self) -> ConsumerData:
        where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        if self._from_first:
            where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        return ConsumerData(
            self.group,
            consume_type=ConsumeType.CONSUME_POP,
            consume_from_where=where,
            subscriptions=list(self._wanted.values()),
        )

    def _settle(self, popped: Popped) -> None:
        if self._held is not None:
            self._held.settle(popped)

    def _running_info(self) -> RunningInfo:
        # A consumer that pops has no progress of its own in any queue.
        return RunningInfo(
            self._client.routes.nameservers,
            self._is_ordered,
            self._options.concurrency,
            self._opened_ms,
            tuple(self._wanted.values()),
            {},
        )

    def _all_readers(self) -> list[PopReader]:
        return [reader for readers in self._readers.values() for reader in readers]

    def _route_changed(self, route: ClientRoute) -> None:
        if route.topic in self._wanted:
            self._rebalance_wanted.set()

    async def _rebalance_forever(self) -> None:
        """Rebalance every 20 s, each second while a topic is missing, and after changes at once."""
        while True:
            is_complete = True
            for topic in self._wanted:
                if not topic.startswith(RETRY_PREFIX):  # pops of the topic return retries, too
                    is_complete &= await self._rebalance(topic)
            if is_complete:
                self._queues_known.set()
            with trio.move_on_after(REBALANCE_S if is_complete else LONGEST_PAUSE_S):
                await self._rebalance_wanted.wait()

    async def _rebalance(self, topic: str) -> bool:
        """Pop from the right queues of a topic; return False if they are not known now."""
        try:
            route = await self._client.routes.find(topic)
            if route.provisional or not route.read_queues:
                route = await self._client.routes.refresh(topic)
            queues = await self._queues(route)
        except (MessagingError, RemotingError) as error:
            _log.info("group %s waits: %s", self.group, error)
            return False
        if not queues:
            return topic in {queue.topic for queue in self._readers}
        for queue in [one for one in self._readers if one.topic == topic and one not in queues]:
            for reader in self._readers.pop(queue):
                reader.stop()
        for queue in queues - self._readers.keys():
            self._begin(queue)
        return True

    async def _queues(self, route: ClientRoute) -> set[MessageQueue]:
        """Return the queues to pop from. Raises RemotingError."""
        brokers = {queue.broker_name for queue in route.read_queues}
        if not self._is_assigned:
            return {MessageQueue(route.topic, name, _ANY_QUEUE) for name in brokers}
        # Any broker knows the assignment of the queues of all brokers.
        for address in dict.fromkeys(route.masters.values()):
            await self._client.send_heartbeats([address])
            reply = await self._client.remoting.request(
                address,
                pop_requests.assigned_queues(self.group, route.topic, self._client.client_id),
                MEMBERS_TIMEOUT_S,
            )
            if reply.code == ResponseCode.SUCCESS:
                assigned = decode_assigned(reply.body)
                if assigned is not None:
                    return {one.queue for one in assigned}
        return set()

    def _begin(self, queue: MessageQueue) -> None:
        if self._nursery is None or self._held is None or self._is_stopped:
            return
        self._readers[queue] = [
            PopReader(
                self._client,
                self.group,
                queue,
                self._wanted[queue.topic],
                self._held,
                self._options,
                beside=self._beside,
                is_ordered=self._is_ordered,
                from_first=self._from_first,
                on_messages=self._arrived,
                metrics=self._metrics,
            )
            for _ in range(self._options.pops_at_once)
        ]
        for reader in self._readers[queue]:
            self._nursery.start_soon(reader.run)

    def _beside(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work in the background, unless the block has ended."""
        if self._nursery is not None:
            self._nursery.start_soon(work)

    def _arrived(self, result: PopResult) -> None:
        """Hand out the messages of a pop, or give them back if they come too late."""
        if self._held is None or self._acknowledging is None:
            return
        for popped in (*result.messages, *result.unwanted):
            self._held.add(popped)
        if self._is_stopped:
            self._held.give_back_now((*result.messages, *result.unwanted))
            return
        for popped in result.unwanted:
            self._acknowledging.add(popped)
        if result.messages:
            self._seen.add(result.messages[0].message.queue)
            self._listening.offer(result.messages)
