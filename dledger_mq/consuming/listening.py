"""Handing out messages: to a fixed number of tasks that run the listener, or to an iteration."""

from collections import Counter, deque
from contextlib import AbstractContextManager
from dataclasses import dataclass

import trio

from dledger_mq.consuming.back_off import redelivery_delay_s
from dledger_mq.consuming.call_rules import CallRule, Postponed
from dledger_mq.consuming.listener_calls import ListenerCalls
from dledger_mq.consuming.queue_reader import QueueReader
from dledger_mq.received_message import ReceivedMessage


@dataclass(slots=True, eq=False)
class Delivery:
    """Messages that the user has, and that are not settled.

    Attributes:
        reader: their queue.
        messages: at least one.
        began: when they were taken, on trio's clock.
        scope: what the listener's call runs in.
        is_running: the user still works on them.
        is_held: the end of the consumer waits for their release.
        trace_request: of `ListenerCalls.begin`.
    """

    reader: QueueReader
    messages: list[ReceivedMessage]
    began: float
    scope: AbstractContextManager[object]
    is_running: bool = True
    is_held: bool = True
    trace_request: str = ""


class Listening:
    """Hands out the messages of a consumer's queues in turn, and learns what became of them.

    Args:
        calls: of the listener.
        rule: when a queue's messages may be handed out, and what becomes of those that failed.
        postponed: where messages wait that are not to be handed out yet.
        batch_size: how many messages are taken at a time, at most.
        most_of_a_topic: how many deliveries of one topic are out at a time, so that a topic whose
            messages take long leaves some to the others; None: as many as there can be.
    """

    def __init__(
        self,
        calls: ListenerCalls,
        rule: CallRule,
        postponed: Postponed,
        *,
        batch_size: int,
        most_of_a_topic: int | None,
    ) -> None:
        self._calls = calls
        self._rule = rule
        self._postponed = postponed
        self._batch_size = batch_size
        self._most_of_a_topic = most_of_a_topic
        self._out: Counter[str] = Counter()  # deliveries by topic
        self._full: dict[str, list[QueueReader]] = {}  # queues of topics that have as many
        self._ready: deque[QueueReader] = deque()
        self._idle = trio.lowlevel.ParkingLot()
        self._busy = 0
        self._quiet = trio.lowlevel.ParkingLot()
        self._stopping = False

    def arrived(self, reader: QueueReader, messages: list[ReceivedMessage]) -> None:
        """Messages have come from a broker; those of a retry topic wait for their time."""
        if not reader.holds_messages:
            self.offer(reader)
            return
        now = trio.current_time()
        for message in messages:
            self._postponed.add(now + redelivery_delay_s(message), (reader, [message]))

    def offer(self, reader: QueueReader) -> None:
        """Messages wait in a queue."""
        if reader not in self._ready:
            self._ready.append(reader)
        self._idle.unpark(count=max(1, reader.cached.waiting // self._batch_size))

    async def offer_postponed(self) -> None:
        """Offer messages and queues when their time has come, for ever."""
        while True:
            for reader, messages in await self._postponed.due():
                if not reader.dropped:
                    reader.cached.give_back(messages)
                    self.offer(reader)

    async def stop(self, timeout_s: float) -> None:
        """Hand out nothing more, and wait until what was taken is settled.

        Args:
            timeout_s: how long; listeners that run then are cancelled with the consumer.
        """
        self._stopping = True
        with trio.move_on_after(timeout_s):
            while self._busy:
                await self._quiet.park()

    async def work(self) -> None:
        """Run the listener with one delivery after the other, for ever."""
        while True:
            delivery = await self.take()
            is_consumed: bool | None = None
            try:
                with delivery.scope:
                    is_consumed = await self._calls.succeeds(delivery.messages, delivery.began)
                if is_consumed:
                    self.succeed(delivery)
                elif is_consumed is not None:  # else the call was cut off: its queue is lost
                    await self.fail(delivery)
            finally:
                self.release(delivery)
            # A listener that never waits must not keep the others from running.
            await trio.lowlevel.checkpoint()

    async def take(self) -> Delivery:
        """Wait for messages. The caller must settle the delivery, and `release` it.

        Cancelling loses none. It is no checkpoint if there are messages.
        """
        while True:
            while self._stopping or not self._ready:
                await self._idle.park()
            reader = self._ready.popleft()
            messages = self._take(reader)
            if messages:
                self._busy += 1
                if self._most_of_a_topic is not None:
                    self._out[reader.queue.topic] += 1
                reader.call_began()
                request = self._calls.begin(messages)
                now, scope = trio.current_time(), self._rule.scope(reader)
                return Delivery(reader, messages, now, scope, trace_request=request)

    def succeed(self, delivery: Delivery) -> None:
        """Settle: the messages were consumed."""
        reader = delivery.reader
        self._end_call(delivery)
        self._tell_end(delivery, is_consumed=True)
        if reader.dropped:
            return  # another member has them by now
        self._rule.succeeded(reader, delivery.began)
        reader.cached.done(delivery.messages)
        self._go_on(reader)

    async def fail(self, delivery: Delivery) -> None:
        """Settle: the messages were not consumed; they come again later, here or elsewhere."""
        reader = delivery.reader
        if delivery.is_running:
            self._tell_end(delivery, is_consumed=False)
        self._end_call(delivery)
        if reader.dropped or reader.is_leaving:
            # Another member reads the queue from the committed offset on, and gets these again.
            return
        await self._rule.failed(reader, delivery.messages, delivery.began)
        self._go_on(reader)

    def release(self, delivery: Delivery) -> None:
        """Nothing more will be heard of the delivery; what is not settled is not committed."""
        self._end_call(delivery)
        if delivery.is_held:
            delivery.is_held = False
            self._busy -= 1
            if self._most_of_a_topic is not None:
                topic = delivery.reader.queue.topic
                self._out[topic] -= 1
                for reader in self._full.pop(topic, ()):
                    self.offer(reader)
            if not self._busy:
                self._quiet.unpark_all()

    def _tell_end(self, delivery: Delivery, *, is_consumed: bool) -> None:
        took_s = trio.current_time() - delivery.began
        self._calls.end(delivery.trace_request, delivery.messages, took_s, is_consumed=is_consumed)

    def _take(self, reader: QueueReader) -> list[ReceivedMessage]:
        """The next messages of a queue for the listener; none while its calls are paused."""
        if reader.dropped or reader.is_leaving:
            return []
        topic, most = reader.queue.topic, self._most_of_a_topic
        if most is not None and self._out[topic] >= most:
            self._full.setdefault(topic, []).append(reader)
            return []
        if not self._rule.allows(reader, trio.current_time()):
            return []  # it is offered again when its pause or its call ends
        messages = reader.cached.take(self._batch_size)
        if reader.cached.waiting:
            self._ready.append(reader)
        return messages

    def _end_call(self, delivery: Delivery) -> None:
        if delivery.is_running:
            delivery.is_running = False
            delivery.reader.call_ended()

    def _go_on(self, reader: QueueReader) -> None:
        """Hand out and pull what had to wait for a delivery to be settled."""
        if reader.cached.waiting:
            self.offer(reader)  # it was passed over if this call was the only one allowed
        reader.has_room()
