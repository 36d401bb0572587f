"""Hands out messages: to a fixed number of tasks that run the listener, or to an iteration."""

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
        began: when they were taken, on trio's clock.
        scope: the context of the listener's call.
        is_running: the user still works on them.
        is_held: the end of the consumer waits for their release.
        trace_request: the id that `ListenerCalls.begin` returned.
    """

    reader: QueueReader
    messages: list[ReceivedMessage]
    began: float
    scope: AbstractContextManager[object]
    is_running: bool = True
    is_held: bool = True
    trace_request: str = ""


class Listening:
    """Hands out the messages of a consumer's queues in turn, and handles their outcomes.

    At most `most_of_a_topic` deliveries of one topic are out at a time, so that a topic whose
    messages take long leaves some to the others; None for no limit.
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
        self._full: dict[str, list[QueueReader]] = {}  # queues of topics at that limit
        self._ready: deque[QueueReader] = deque()
        self._idle = trio.lowlevel.ParkingLot()
        self._busy = 0
        self._quiet = trio.lowlevel.ParkingLot()
        self._stopping = False

    def arrived(self, reader: QueueReader, messages: list[ReceivedMessage]) -> None:
        """Offer the messages of a pull; those of a retry topic wait for their time."""
        if not reader.holds_messages:
            self.offer(reader)
            return
        now = trio.current_time()
        for message in messages:
            self._postponed.add(now + redelivery_delay_s(message), (reader, [message]))

    def offer(self, reader: QueueReader) -> None:
        """Hand out the messages that wait in a queue."""
        if reader not in self._ready:
            self._ready.append(reader)
        self._idle.unpark(count=max(1, reader.cached.waiting // self._batch_size))

    async def offer_postponed(self) -> None:
        """Offer messages and queues once their time has come, for ever."""
        while True:
            for reader, messages in await self._postponed.due():
                if not reader.dropped:
                    reader.cached.give_back(messages)
                    self.offer(reader)

    async def stop(self, timeout_s: float) -> None:
        """Hand out no more, and wait up to the timeout until all deliveries are released."""
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
                elif is_consumed is not None:  # else the call was cancelled: its queue is lost
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
        self._record_end(delivery, is_consumed=True)
        if reader.dropped:
            return  # another member has them by now
        self._rule.succeeded(reader, delivery.began)
        reader.cached.done(delivery.messages)
        self._go_on(reader)

    async def fail(self, delivery: Delivery) -> None:
        """Settle: the messages were not consumed, and are redelivered, here or elsewhere."""
        reader = delivery.reader
        if delivery.is_running:
            self._record_end(delivery, is_consumed=False)
        self._end_call(delivery)
        if reader.dropped or reader.is_leaving:
            # Another member reads the queue from the committed offset, and gets these again.
            return
        await self._rule.failed(reader, delivery.messages, delivery.began)
        self._go_on(reader)

    def release(self, delivery: Delivery) -> None:
        """End the delivery; messages that are not settled are not committed."""
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

    def _record_end(self, delivery: Delivery, *, is_consumed: bool) -> None:
        took_s = trio.current_time() - delivery.began
        self._calls.end(delivery.trace_request, delivery.messages, took_s, is_consumed=is_consumed)

    def _take(self, reader: QueueReader) -> list[ReceivedMessage]:
        if reader.dropped or reader.is_leaving:
            return []
        topic, most = reader.queue.topic, self._most_of_a_topic
        if most is not None and self._out[topic] >= most:
            self._full.setdefault(topic, []).append(reader)
            return []
        if not self._rule.allows(reader, trio.current_time()):
            return []  # the queue is offered again when its pause or its call ends
        messages = reader.cached.take(self._batch_size)
        if reader.cached.waiting:
            self._ready.append(reader)
        return messages

    def _end_call(self, delivery: Delivery) -> None:
        if delivery.is_running:
            delivery.is_running = False
            delivery.reader.call_ended()

    def _go_on(self, reader: QueueReader) -> None:
        """Hand out and pull messages that had to wait until a delivery was settled."""
        if reader.cached.waiting:
            self.offer(reader)  # it was skipped if only this call was allowed
        reader.has_room()
