"""The consumer that pops: it holds no queue, and acknowledges each message."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import trio

from dledger.wake_up import WakeUp
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
from dledger_mq.message import RETRY_TOPIC_PREFIX, check_topic
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
from remoting.wire.codes import ResponseCode
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# RocketMQ's rebalance interval; brokers also tell when members come or go.
LOOK_S: Final = 20.0

# The last acknowledgements of a cancelled block, or of one that ends by an error.
LAST_ACKNOWLEDGEMENTS_S: Final = 1.0

_ANY_QUEUE: Final = -1


class PopConsumer:
    """Consumes the topics of a group by pops (see docs/pop.md).

    Each message is this consumer's for a time, which it renews while the listener has it. What the
    listener consumed is acknowledged and never given again; what it failed with comes again later,
    to any member. Members hold no queues, so there may be more of them than queues, and nothing
    moves when they come or go. What a consumer that dies had comes again after its invisible time.

    Args:
        group: the consumer group.
        topics: a topic, several, or what is wanted by topic: tags ("TagA || TagB"), or a condition
            (`Sql`).
        listener: gets messages of one queue; its answer RETRY, or an error, has them come again.
        nameservers: "host:port" each, for a client of its own; or one text with semicolons between.
        client: an open client to share instead.
        ordered: whether the messages of a queue are consumed one after the other. All members of a
            group must agree.
        assigned: whether brokers say from which queues this member pops (as operators set it by
            `Admin.set_request_mode`); else it pops from all queues.
        from_first: whether a group that never consumed begins with the first message there is; else
            with those that are sent from now on.
        options: what can be tuned.
        metrics: told of each pop, and of what became of messages.
        trace: whether what becomes of messages is written into RocketMQ's trace topic; or the name
            of another topic to write it to. See `Admin.trace`.
    """

    def __init__(
        self,
        group: str,
        topics: str | Sequence[str] | Mapping[str, str | Sql],
        listener: Listener,
        *,
        nameservers: str | Sequence[str] = (),
        client: Client | None = None,
        ordered: bool = False,
        assigned: bool = False,
        from_first: bool = False,
        options: PopOptions | None = None,
        metrics: ClientMetrics | None = None,
        trace: bool | str = False,
    ) -> None:
        check_topic(group)
        check_listener(listener)
        self.group = group
        self._topics = topics
        self._use = ClientUse(
            "consumer", "PopConsumer", "open_pop_consumer", nameservers, client, group
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
        self._look_wanted = WakeUp()
        self._looked = trio.Event()
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
        """Stop popping, let listeners finish, acknowledge, give the rest back, leave the group.

        An error that ends the block does not wait for listeners, unless they run in threads, which
        cannot be interrupted: what they have consumed is acknowledged, all else comes again.
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
                self._data(), self._look_wanted.set, self._running_info, self._direct.asked
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
            nursery.start_soon(held.renew_for_ever)
            nursery.start_soon(self._look_for_ever)
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
        self._listening.give_no_more()

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
        """Wait until brokers have answered: a new group is given every message sent after this.

        Raises:
            ClientClosed: the consumer is not open, or ends meanwhile.
        """
        await self._looked.wait()
        for reader in list(self._all_readers()):
            await reader.positioned.wait()

    def queues(self) -> list[MessageQueue]:
        """What this member pops from; the id -1 is any queue of a broker."""
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
        """What it is doing; a consumer that pops has no progress of its own in any queue."""
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
            self._look_wanted.set()
            for reader in self._all_readers():
                reader.route_changed(route)

    async def _look_for_ever(self) -> None:
        """Look every 20 s from which queues to pop, and at once when something has changed."""
        while True:
            is_complete = True
            for topic in self._wanted:
                if not topic.startswith(RETRY_TOPIC_PREFIX):  # the topic's own pops bring those
                    is_complete &= await self._look_at(topic)
            if is_complete:
                self._looked.set()
            with trio.move_on_after(LOOK_S if is_complete else LONGEST_PAUSE_S):
                await self._look_wanted.wait()

    async def _look_at(self, topic: str) -> bool:
        """Pop from the right queues of a topic; False when they are not known now."""
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
        """From which queues to pop. Raises RemotingError."""
        brokers = {queue.broker_name for queue in route.read_queues}
        if not self._is_assigned:
            return {MessageQueue(route.topic, name, _ANY_QUEUE) for name in brokers}
        # Any broker tells those of all.
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
        """Run something in the background; after the end of the block, nothing."""
        if self._nursery is not None:
            self._nursery.start_soon(work)

    def _arrived(self, result: PopResult) -> None:
        """Messages have come; perhaps too late."""
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
