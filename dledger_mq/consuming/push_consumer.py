"""The push consumer, a member of a group that gets every message of its queues."""

import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from dledger.renamed import renamed_fields
from dledger.wake_up import WakeUp
from dledger_mq.argument_checks import check_kind, check_number
from dledger_mq.client_metrics import ClientMetrics, reported
from dledger_mq.connection.calls import LONGEST_PAUSE_S
from dledger_mq.connection.client import Client, ConsumerEntry
from dledger_mq.connection.client_use import ClientUse
from dledger_mq.connection.lifetime import Background, during_block
from dledger_mq.connection.running_info import QueueInfo, RunningInfo
from dledger_mq.connection.this_process import now_ms
from dledger_mq.connection.topic_route import ClientRoute
from dledger_mq.consuming.assignment import Share, own_share, whole_topic
from dledger_mq.consuming.cached_queue import (
    MAX_CACHED_BYTES,
    MAX_CACHED_MESSAGES,
    MAX_TOTAL_CACHED_BYTES,
    CachedBytes,
    CachedQueue,
)
from dledger_mq.consuming.call_rules import AtOnce, CallRule, GivingBack, InOrder, Postponed
from dledger_mq.consuming.conditions import check_conditions
from dledger_mq.consuming.direct_calls import DirectCalls
from dledger_mq.consuming.iteration import Iteration
from dledger_mq.consuming.listener_calls import ListenerCalls
from dledger_mq.consuming.listening import Listening
from dledger_mq.consuming.offsets import BrokerOffsets, FileOffsets, Offsets, locked_offsets
from dledger_mq.consuming.ordered_queues import OrderedQueues
from dledger_mq.consuming.pulling import PULL_BATCH
from dledger_mq.consuming.queue_reader import QueueReader
from dledger_mq.consuming.subscription import Sql, group_subscriptions
from dledger_mq.errors import MessagingError, NotIterable
from dledger_mq.listener import SLOW_CALL_S, Listener, check_listener
from dledger_mq.message import ConsumeFrom, check_group
from dledger_mq.tracing.trace_writer import open_trace, trace_topic
from remoting.bodies.heartbeat import ConsumeFromWhere, ConsumerData, MessageModel, SubscriptionData
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.queue_shares import readers_of
from remoting.message.topic_names import RETRY_PREFIX
from remoting.net.tls_config import Tls
from remoting.wire.signature import Credentials

_log = logging.getLogger(__name__)

# RocketMQ's rebalance interval; brokers also notify when members come or go.
REBALANCE_S: Final = 20.0

# RocketMQ's persistConsumerOffsetInterval: a crash repeats only messages consumed since the commit.
COMMIT_S: Final = 5.0

# When a queue moves to another member: how long the old member waits for the listener's calls, and
# how long the new member waits for the last commit. Both begin with the broker's notice, so the
# difference is for the notice and the commit to arrive.
LAST_CALLS_S: Final = 0.5
HANDOVER_S: Final = 1.0

# A cancelled block, or one that ends by an error, commits once more, but does not wait long:
# brokers answer in milliseconds, and after a crash messages are repeated, too.
LAST_COMMIT_S: Final = 1.0

# RocketMQ's maxReconsumeTimes of a consumer that keeps no order.
MOST_RECONSUME_TIMES: Final = 16

# A topic leaves one in this many of the consumer's calls to other topics, at most one to each: if
# its messages take long it does not stop them, and it loses little while they are idle.
LEFT_TO_OTHERS: Final = 4

# The numbers of messages in requests have 32 bits.
_MOST: Final = (1 << 31) - 1

# The range of suspend_ms is RocketMQ's for suspendCurrentQueueTimeMillis.
_COUNTS: Final[dict[str, tuple[int, int]]] = {
    "concurrency": (1, 100_000),
    "batch_size": (1, _MOST),
    "pull_batch": (1, _MOST),
    "max_cached_messages": (1, _MOST),
    "max_cached_bytes": (1, 1 << 50),
    "max_total_cached_bytes": (0, 1 << 50),
    "suspend_ms": (10, 30_000),
}

# RocketMQ's default for TIMESTAMP: half an hour ago.
DEFAULT_BACK_MS: Final = 30 * 60 * 1000

_FROM_WHERE: Final = {
    ConsumeFrom.LAST: ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    ConsumeFrom.FIRST: ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ConsumeFrom.TIMESTAMP: ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
}


@renamed_fields(
    close_timeout_seconds="close_timeout_s",
    slow_call_seconds="slow_call_s",
    suspend_milliseconds="suspend_ms",
)
@dataclass(frozen=True, slots=True)
class PushOptions:
    """The options of a push consumer; the defaults are RocketMQ's.

    Attributes:
        concurrency: how many listeners run at once. With several topics, each leaves one of these
            calls to each other topic, up to a quarter of them.
        batch_size: the most messages that a listener gets.
        pull_batch: how many messages a pull asks for.
        max_cached_messages: of one queue: pulled and not done.
        max_cached_bytes: of one queue: of bodies and properties.
        max_total_cached_bytes: of all queues together. A queue that holds nothing may still pull.
        max_reconsume_times: after this many redeliveries a message goes to the dead-letter topic.
            None is 16, and no limit for an ordered consumer: the queue waits for the message.
        suspend_ms: of an ordered consumer: how long a queue waits when the listener
            failed, before it gets the same message again; 10 to 30,000.
        close_timeout_s: how long the end of the block waits for listeners that run.
        slow_call_s: a call of the listener that takes longer is logged, once a minute for
            each listener.
    """

    concurrency: int = 20
    batch_size: int = 1
    pull_batch: int = PULL_BATCH
    max_cached_messages: int = MAX_CACHED_MESSAGES
    max_cached_bytes: int = MAX_CACHED_BYTES
    max_total_cached_bytes: int = MAX_TOTAL_CACHED_BYTES
    max_reconsume_times: int | None = None
    suspend_ms: int = 1000
    close_timeout_s: float = 5.0
    slow_call_s: float = SLOW_CALL_S

    def __post_init__(self) -> None:
        """Raises InvalidOptions."""
        for name, (least, most) in _COUNTS.items():
            check_number("PushOptions", name, getattr(self, name), least, most, whole=True)
        times = self.max_reconsume_times
        if times is not None:
            check_number("PushOptions", "max_reconsume_times", times, 0, _MOST, whole=True)
        for name in ("close_timeout_s", "slow_call_s"):
            check_number("PushOptions", name, getattr(self, name), 0, float("inf"))


class PushConsumer:
    """Consumes the topics of a group, sharing their queues with the group's other members.

    With a listener, up to 20 of its calls run at once. Without one, `async for message in consumer`
    yields one message after the other, each acknowledged when the next is asked for; see
    `acknowledge` and `give_back`. A message that a loop had when it ended by `break` or by an error
    is not acknowledged.

    Every message is delivered at least once: it may be redelivered after a crash, a fail-over or a
    change of members.

    An ordered consumer locks its queues, so that no other member reads them meanwhile, and delivers
    the messages of one queue one after the other: the next one after the listener's success.

    Args:
        group: the consumer group; all members must subscribe to the same topics and tags.
        topics: a topic, several, or a mapping of topics to tags ("TagA || TagB") or conditions
            (`Sql`).
        listener: gets messages of one queue; they are redelivered if it returns RETRY or raises an
            error. None for a consumer that is iterated over.
        nameservers: "host:port" each, or one text with semicolons between them, for a client of its
            own.
        client: an open client to share instead.
        tls: TLS with all name servers and brokers, for a client of its own.
        credentials: the user that a client of its own is, where brokers have access control.
        ordered: whether the order in each queue is kept. All members of a group must agree.
        model: CLUSTERING shares the messages in the group, BROADCASTING gives all to each member.
        consume_from: where to begin in a queue without a committed offset.
        consume_timestamp: for TIMESTAMP: milliseconds since 1970; half an hour ago when None.
        offset_file: where a broadcasting consumer keeps its offsets; None keeps them in memory.
        options: numbers and limits.
        metrics: receives each pull, and the outcome of messages.
        trace: whether the consumption of messages is written to RocketMQ's trace topic, or the name
            of another trace topic. See `Admin.trace`.

    Raises:
        InvalidOptions: `consume_timestamp` is no whole number of milliseconds.
        InvalidArgument: `options`, `offset_file` or `client` is of another kind.
        ValueError: `model` or `consume_from` is another value.
    """

    def __init__(
        self,
        group: str,
        topics: str | Sequence[str] | Mapping[str, str | Sql],
        listener: Listener | None = None,
        *,
        nameservers: str | Sequence[str] = (),
        client: Client | None = None,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        ordered: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
        consume_timestamp: int | None = None,
        offset_file: str | Path | None = None,
        options: PushOptions | None = None,
        metrics: ClientMetrics | None = None,
        trace: bool | str = False,
    ) -> None:
        check_group(group)
        if listener is not None:
            check_listener(listener)
        if consume_timestamp is not None:
            most = (1 << 63) - 1
            check_number(
                "PushConsumer", "consume_timestamp", consume_timestamp, 0, most, whole=True
            )
        if options is not None:
            check_kind("PushConsumer", "options", options, PushOptions, "PushOptions(...)")
        if offset_file is not None:
            check_kind("PushConsumer", "offset_file", offset_file, (str, Path), "a path")
        self.group = group
        self._topics = topics
        self._listener = listener
        self._use = ClientUse(
            "consumer", "PushConsumer", nameservers, client, group, tls, credentials
        )
        self._client, self._lifetime = self._use.client, self._use.lifetime
        self._is_ordered = ordered
        self._model = MessageModel(model)
        self._consume_from = ConsumeFrom(consume_from)
        self._consume_timestamp = consume_timestamp
        self._offset_file = None if offset_file is None else Path(offset_file)
        self._options = options or PushOptions()
        self._metrics = reported(metrics)
        self._trace_topic = trace_topic(trace)
        self._opened_ms = 0
        self._wanted: dict[str, SubscriptionData] = {}
        self._readers: dict[MessageQueue, QueueReader] = {}
        self._cached_bytes = CachedBytes(self._options.max_total_cached_bytes)
        self._members: dict[str, Collection[str]] = {}  # by topic, when they were last known
        self._offsets: Offsets = FileOffsets(None)
        self._nursery: Background | None = None
        self._listening: Listening | None = None
        self._locked: OrderedQueues | None = None
        self._iteration: Iteration | None = None
        watch, slow_s = self._client.listener_watch, self._options.slow_call_s
        self._calls = ListenerCalls(group, listener, watch, slow_s, self._metrics)
        self._direct = DirectCalls(self._calls, is_ordered=ordered)
        self._rebalance_wanted = WakeUp()
        self._assigned = trio.Event()
        self._problems: dict[str, str] = {}

    async def __aenter__(self) -> "PushConsumer":
        """Join the group; queues are read as soon as their brokers answer (see `ready`).

        Raises:
            OpenedTwice: it was opened before.
            ClientClosed: the shared client is not open.
            GroupInUse: the shared client has a consumer of this group.
            InvalidMessage: a topic's name is not legal, or there is none.
            InvalidCondition: a broker cannot filter by a condition (`Sql`).
            OffsetFileUnreadable: the file holds no offsets, or there can be no such file.
            OffsetFileLocked: another consumer keeps its offsets there.
        """
        await self._use.open(self._work)
        return self

    async def __aexit__(self, *raised: Any) -> None:
        """Stop reading, let listeners finish (unless an error ends the block), commit, leave.

        Messages that the listener has consumed by the end of its last call are committed. Calls in
        threads cannot be interrupted, and are waited for; this member keeps its queues that long.
        """
        await self._use.close(*raised)

    @asynccontextmanager
    async def _work(self) -> AsyncIterator[None]:
        client, lifetime = self._client, self._lifetime
        async with AsyncExitStack() as stack:
            if self._offset_file is not None and not self._is_shared:
                stack.enter_context(locked_offsets(self._offset_file))
            self._prepare()
            await check_conditions(client, self.group, self._wanted.values())
            client.add_consumer(
                ConsumerEntry(
                    self._data(), self._rebalance_wanted.set, self._running_info, self._direct.asked
                )
            )
            stack.push_async_callback(self._unlock_all)  # when no call of the listener runs
            self._calls.trace = await open_trace(stack, self._use, self._trace_topic)
            nursery = await stack.enter_async_context(Background(lifetime, until_the_end=True))
            stack.callback(self._forget)
            calls = await stack.enter_async_context(Background(lifetime))  # of the listener
            self._nursery = nursery
            self._direct.begin(calls)
            client.routes.watch(self._route_changed)
            if self._is_ordered and self._is_shared:
                self._locked = OrderedQueues(
                    client, self.group, nursery, self._gained, self._renewed, self._lost
                )
            postponed = Postponed()
            listening = self._listening = Listening(
                self._calls,
                self._call_rule(postponed),
                postponed,
                batch_size=1 if self._listener is None else self._options.batch_size,
                most_of_a_topic=self._most_of_a_topic(),
            )
            if self._listener is not None:
                for _ in range(self._options.concurrency):
                    calls.start_soon(listening.work)
            nursery.start_soon(listening.offer_postponed)
            nursery.start_soon(self._rebalance_forever)
            nursery.start_soon(self._commit_forever)
            leave_s = LAST_COMMIT_S
            try:
                try:
                    yield
                finally:
                    self._stop_reading()
                await listening.stop(self._options.close_timeout_s)
                leave_s = COMMIT_S
            finally:  # the block may be cancelled
                await calls.end()
                await self._leave(leave_s)

    def _stop_reading(self) -> None:
        if self._iteration is not None:
            self._iteration.close()
        self._client.routes.unwatch(self._route_changed)
        for reader in self._readers.values():
            reader.stop_reading()

    async def _leave(self, leave_s: float) -> None:
        with trio.move_on_after(leave_s, shield=True):
            await self._commit(list(self._readers.values()), is_last=True)
        for reader in self._readers.values():
            reader.drop()
        await self._client.remove_consumer(self.group)

    def _forget(self) -> None:
        self._readers = {}
        self._listening = self._nursery = None

    def __aiter__(self) -> Iteration:
        """Begin a loop over the messages; an earlier loop gets no more of them.

        Messages of one queue come in their order, and queues take turns. A message that an earlier
        loop had when it ended is sent back first, and redelivered later. The loop ends when the
        consumer's block does.

        Raises:
            ClientClosed: the consumer is not open.
            NotIterable: it has a listener.
        """
        self._lifetime.check_loop()
        if self._listener is not None:
            raise NotIterable("its listener gets the messages; make a consumer without one")
        if self._listening is None:
            raise self._lifetime.closed()
        self._iteration = Iteration(self._listening, self._iteration, self._lifetime)
        return self._iteration

    def acknowledge(self) -> None:
        """Record that the loop's message is consumed: call it before `break`, for example.

        It does nothing if the loop has no message.
        """
        self._lifetime.check_loop()
        if self._iteration is not None:
            self._iteration.acknowledge()

    async def give_back(self) -> None:
        """Send the loop's message back for redelivery, as when a listener fails with it.

        Waits until the broker has taken it. It does nothing if the loop has no message.
        """
        self._lifetime.check_loop()
        if self._iteration is not None:
            await self._iteration.give_back()
        else:
            await trio.lowlevel.checkpoint()

    def _call_rule(self, postponed: Postponed) -> CallRule:
        options = self._options
        most = options.max_reconsume_times
        giving_back = None
        if self._is_shared:
            giving_back = GivingBack(
                self._client, self.group, MOST_RECONSUME_TIMES if most is None else most
            )
        if not self._is_ordered:
            return AtOnce(self.group, postponed, giving_back)
        suspend_s = options.suspend_ms / 1000
        return InOrder(self.group, postponed, giving_back, suspend_s, most, self._may_call)

    def _most_of_a_topic(self) -> int | None:
        """Return how many calls of the listener one topic may have; None for no limit."""
        calls = self._options.concurrency
        others = len([topic for topic in self._wanted if not topic.startswith(RETRY_PREFIX)])
        left = min(max(others - 1, 0), calls // LEFT_TO_OTHERS)
        return calls - left if left else None

    def _may_call(self, queue: MessageQueue) -> bool:
        return self._locked is None or self._locked.is_fresh(queue)

    @property
    def _is_shared(self) -> bool:
        return self._model is MessageModel.CLUSTERING

    def _prepare(self) -> None:
        """Find the subscriptions, and where progress is kept."""
        now = self._opened_ms = now_ms()
        if self._consume_timestamp is None:
            self._consume_timestamp = now - DEFAULT_BACK_MS
        # Broadcasting consumers send nothing back to the retry topic.
        self._wanted = group_subscriptions(
            self.group, self._topics, now, with_retries=self._is_shared
        )
        if not self._is_shared:
            self._offsets = FileOffsets(self._offset_file)
        else:
            self._offsets = BrokerOffsets(self._client, self.group)

    @during_block
    async def ready(self) -> None:
        """Wait until this member has its share of the queues and knows where to begin in each.

        A consumer that begins with the last message gets every message sent after this. An ordered
        consumer gets a queue once the member before has unlocked it, or was silent for a minute.

        Raises:
            ClientClosed: the consumer is not open, or ends meanwhile.
        """
        await self._assigned.wait()
        if self._locked is not None:
            await self._locked.wait_held()
        for reader in list(self._readers.values()):
            await reader.positioned.wait()

    def queues(self) -> list[MessageQueue]:
        """Return the queues that this member reads now."""
        return sorted(self._readers)

    @during_block
    async def commit(self) -> None:
        """Commit the progress of every queue now, as happens every 5 s and at the end.

        Raises:
            ClientClosed: the consumer is not open, or ends meanwhile.
        """
        await self._commit(list(self._readers.values()))

    def _data(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            message_model=self._model,
            consume_from_where=_FROM_WHERE[self._consume_from],
            subscriptions=list(self._wanted.values()),
        )

    def _running_info(self) -> RunningInfo:
        queues = {
            queue: QueueInfo(
                reader.cached.commit_offset,
                reader.cached.next_offset,
                len(reader.cached),
                reader.cached.held_bytes,
                self._locked is not None and self._locked.is_fresh(queue),
            )
            for queue, reader in self._readers.items()
            if reader.positioned.is_set()
        }
        return RunningInfo(
            self._client.routes.nameservers,
            self._is_ordered,
            self._options.concurrency,
            self._opened_ms,
            tuple(self._wanted.values()),
            queues,
            self._calls.tally.statuses(),
        )

    def _route_changed(self, route: ClientRoute) -> None:
        if route.topic in self._wanted:
            self._rebalance_wanted.set()

    async def _rebalance_forever(self) -> None:
        """Rebalance every 20 s, each second while a topic is missing, and after a change at
        once.
        """
        while True:
            is_complete = await self._rebalance()
            pause_s = REBALANCE_S if is_complete else LONGEST_PAUSE_S
            with trio.move_on_after(pause_s):
                await self._rebalance_wanted.wait()

    async def _rebalance(self) -> bool:
        """Start and stop readers by the share; return False if a share is unknown."""
        is_complete = True
        lost: list[QueueReader] = []
        gained: dict[MessageQueue, float] = {}
        are_user_topics_known = True
        self_id = self._client.client_id
        for topic in self._wanted:
            share = await self._share(topic)
            if share is None:
                is_complete = False
                are_user_topics_known &= topic.startswith(RETRY_PREFIX)
                continue
            lost += [
                reader
                for queue, reader in self._readers.items()
                if queue.topic == topic and queue not in share.queues and not reader.is_leaving
            ]
            if self._locked is not None:
                self._locked.keep_only(topic, share.queues)
            before = self._readers_before(topic, share)
            for queue in share.queues:
                if queue not in self._readers:
                    is_handed_over = before.get(queue, self_id) != self_id
                    gained[queue] = HANDOVER_S if is_handed_over else 0.0
        if self._locked is None:
            await self._give_up(lost)
            for queue, handover_s in gained.items():
                self._start_reading(queue, handover_s)
        else:
            for reader in lost:
                self._begin_leaving(reader)
            for queue in gained:
                self._locked.want(queue)
        if are_user_topics_known:
            self._assigned.set()
        return is_complete

    def _readers_before(self, topic: str, share: Share) -> Mapping[MessageQueue, str]:
        """Return the members that read the queues until now, as far as this one can know.

        A consumer that has just joined assumes that all others were there. A member that is not
        listed any more counts, too: a new leader may not know it yet.
        """
        present = [member for member in share.members if member != self._client.client_id]
        before = self._members.get(topic, present)
        self._members[topic] = share.members
        return readers_of(share.all_queues, before)

    async def _share(self, topic: str) -> Share | None:
        """Return this member's share of a topic, or None if it is unknown now."""
        try:
            if self._is_shared:
                share = await own_share(self._client, self.group, topic)
            else:
                share = await whole_topic(self._client, topic)
        except MessagingError as error:
            # Not logged: a retry topic is made by the group's first heartbeat, and during an
            # election a topic may be missing for a second.
            is_expected = topic.startswith(RETRY_PREFIX) or self._client.routes.known(topic)
            if not is_expected and self._problems.get(topic) != str(error):
                self._problems[topic] = str(error)
                _log.warning("group %s waits: %s", self.group, error)
            return None
        self._problems.pop(topic, None)
        return share

    async def _give_up(self, readers: Sequence[QueueReader]) -> None:
        """Stop reading queues that moved to another member, and commit their progress.

        The listener's calls get a moment to end, so that the other member does not repeat them.
        """
        if not readers:
            return
        with trio.move_on_after(LAST_CALLS_S):
            async with trio.open_nursery() as nursery:
                for reader in readers:
                    nursery.start_soon(reader.leave)
        await self._commit(readers)
        for reader in readers:
            reader.drop()
            self._readers.pop(reader.queue, None)  # the end of the block may have removed it

    def _begin_leaving(self, reader: QueueReader) -> None:
        reader.is_leaving = True
        if self._nursery is not None:
            self._nursery.start_soon(self._leave_locked, reader)

    async def _leave_locked(self, reader: QueueReader) -> None:
        """Unlock a queue when the listener's call has ended, however long that takes.

        The commit comes before the unlocking, so the next member begins behind it.
        """
        await reader.leave()
        if not reader.dropped:
            await self._commit([reader], is_last=True)
        if not reader.dropped:
            reader.drop()
        self._readers.pop(reader.queue, None)
        if self._locked is not None:
            self._locked.give_up(reader.queue)
        self._rebalance_wanted.set()  # the queue may be this member's again

    def _gained(self, queue: MessageQueue) -> None:
        """Read a queue that is locked now, from the last commit: no other member reads it."""
        self._start_reading(queue, 0.0)

    def _renewed(self, queue: MessageQueue) -> None:
        reader = self._readers.get(queue)
        if reader is not None and reader.cached.waiting and self._listening is not None:
            self._listening.offer(reader)

    def _lost(self, queue: MessageQueue) -> None:
        """Cancel the listener and drop what was read: the queue may be another member's."""
        reader = self._readers.get(queue)
        if reader is None:
            return  # the consumer ends
        reader.drop()
        reader.call_scope.cancel()
        if not reader.is_leaving:
            self._begin_leaving(reader)

    async def _unlock_all(self) -> None:
        if self._locked is not None:
            await self._locked.unlock_all()

    def _start_reading(self, queue: MessageQueue, handover_s: float) -> None:
        if self._nursery is None or self._listening is None or self._consume_timestamp is None:
            return
        options = self._options
        reader = QueueReader(
            self._client,
            self.group,
            queue,
            self._wanted[queue.topic],
            CachedQueue(
                0, options.max_cached_messages, options.max_cached_bytes, self._cached_bytes
            ),
            self._offsets,
            self._listening.arrived,
            options.pull_batch,
            self._metrics,
            holds_retries=not self._is_ordered,
        )
        self._readers[queue] = reader
        self._nursery.start_soon(
            reader.run, self._consume_from, self._consume_timestamp, handover_s
        )

    async def _commit_forever(self) -> None:
        while True:
            await trio.sleep(COMMIT_S)
            await self._commit(list(self._readers.values()))

    async def _commit(self, readers: Sequence[QueueReader], *, is_last: bool = False) -> None:
        wanted = {
            reader.queue: reader.cached.commit_offset
            for reader in readers
            if reader.positioned.is_set()
            and not reader.dropped
            and reader.cached.commit_offset != reader.committed
        }
        if not wanted:
            return
        moves = {reader.queue: reader.moves for reader in readers}
        commit = self._offsets.commit_last if is_last else self._offsets.commit
        kept = await commit(wanted)
        for reader in readers:
            if reader.queue in kept and reader.moves == moves[reader.queue]:
                reader.committed = wanted[reader.queue]
        if len(kept) < len(wanted):
            _log.info("%d offsets not committed yet", len(wanted) - len(kept))
