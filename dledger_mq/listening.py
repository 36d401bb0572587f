"""Handing out messages: to a fixed number of tasks that run the listener, or to an iteration."""

import logging
from collections import deque
from dataclasses import dataclass
from typing import Final

import trio

from dledger_mq import requests
from dledger_mq.agenda import Agenda
from dledger_mq.calls import NOT_NOW_CODES, call_master
from dledger_mq.client import Client
from dledger_mq.errors import MessagingError, RequestRefused
from dledger_mq.listener import Listener, call
from dledger_mq.pauses import pause_seconds
from dledger_mq.queue_reader import QueueReader
from dledger_mq.received_message import ReceivedMessage
from dledger_mq.redelivery import delay_seconds, redelivery_delay_seconds
from dledger_mq.reported_metrics import ReportedMetrics
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# While the listener fails for a whole queue, a message is tried here so often before it is sent
# back. Without an end, a message that always fails would never go to the dead letters if it was
# the only one of its queue.
LOCAL_TRIES: Final = 3

# RocketMQ's pause before a message that could not be given back is consumed again here.
LOCAL_RETRY_SECONDS: Final = 5.0


@dataclass(slots=True, eq=False)
class Delivery:
    """Messages that the user has, and that are not settled.

    Attributes:
        reader: their queue.
        messages: at least one.
        began: when they were taken, on trio's clock.
        is_running: the user still works on them.
        is_held: the end of the consumer waits for their release.
    """

    reader: QueueReader
    messages: list[ReceivedMessage]
    began: float
    is_running: bool = True
    is_held: bool = True


class Listening:
    """Hands out the messages of a consumer's queues in turn, and learns what became of them.

    Args:
        client: for giving messages back.
        group: the consumer group.
        batch_size: how many messages are taken at a time, at most.
        gives_back: a message that failed is given back to the broker; a broadcasting consumer
            tries it here a few times, and drops it.
        most_times: after so many repeats a message goes to the dead-letter topic.
        metrics: told what becomes of each delivery, or None.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        *,
        batch_size: int,
        gives_back: bool,
        most_times: int,
        metrics: ReportedMetrics | None = None,
    ) -> None:
        self._client = client
        self._group = group
        self._batch_size = batch_size
        self._gives_back = gives_back
        self._most_times = most_times
        self._metrics = metrics
        self._ready: deque[QueueReader] = deque()
        self._idle = trio.lowlevel.ParkingLot()
        self._busy = 0
        self._quiet = trio.Event()
        self._stopping = False
        # Messages that wait for their time, and queues (without messages) whose pause ends then.
        # Bounded by what the queues may cache.
        self._agenda: Agenda[tuple[QueueReader, list[ReceivedMessage]]] = Agenda()
        self._agenda_changed = trio.Event()

    def arrived(self, reader: QueueReader, messages: list[ReceivedMessage]) -> None:
        """Messages have come from a broker; those of a retry topic wait for their time."""
        if not reader.is_retry_topic:
            self.offer(reader)
            return
        now = trio.current_time()
        for message in messages:
            self._postpone(now + redelivery_delay_seconds(message), reader, [message])

    def offer(self, reader: QueueReader) -> None:
        """Messages wait in a queue."""
        if reader not in self._ready:
            self._ready.append(reader)
        self._idle.unpark(count=max(1, reader.cached.waiting // self._batch_size))

    async def stop(self, timeout_seconds: float) -> None:
        """Hand out nothing more, and wait until what was taken is settled.

        Args:
            timeout_seconds: how long; listeners that run then are cancelled with the consumer.
        """
        self._stopping = True
        with trio.move_on_after(timeout_seconds):
            while self._busy:
                self._quiet = trio.Event()
                await self._quiet.wait()

    async def work(self, listener: Listener) -> None:
        """Run the listener with one delivery after the other, for ever."""
        while True:
            delivery = await self.take()
            try:
                try:
                    is_consumed = await call(listener, delivery.messages)
                except Exception:
                    _log.exception("the listener of group %s failed", self._group)
                    is_consumed = False
                if is_consumed:
                    self.succeed(delivery)
                else:
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
                reader.call_began()
                return Delivery(reader, messages, trio.current_time())

    def succeed(self, delivery: Delivery) -> None:
        """Settle: the messages were consumed."""
        reader = delivery.reader
        self._end_call(delivery)
        if self._metrics is not None:
            seconds = trio.current_time() - delivery.began
            self._metrics.consumed(self._group, delivery.messages, seconds)
        if reader.dropped:
            return  # another member has them by now
        reader.back_off.succeeded(delivery.began)
        reader.cached.done(delivery.messages)
        self._go_on(reader)

    async def fail(self, delivery: Delivery) -> None:
        """Settle: the messages were not consumed; they come again later, here or elsewhere."""
        reader = delivery.reader
        if self._metrics is not None and delivery.is_running:
            seconds = trio.current_time() - delivery.began
            self._metrics.failed(self._group, delivery.messages, seconds)
        self._end_call(delivery)
        if reader.dropped or reader.is_leaving:
            # Another member reads the queue from the committed offset on, and gets these again.
            return
        await self._fail(reader, delivery.messages, delivery.began)
        self._go_on(reader)

    def release(self, delivery: Delivery) -> None:
        """Nothing more will be heard of the delivery; what is not settled is not committed."""
        self._end_call(delivery)
        if delivery.is_held:
            delivery.is_held = False
            self._busy -= 1
            if not self._busy:
                self._quiet.set()

    async def release_postponed(self) -> None:
        """Let messages and queues be taken when their time has come, for ever."""
        while True:
            self._agenda_changed = trio.Event()
            with trio.move_on_at(self._agenda.next_time):
                await self._agenda_changed.wait()
            for reader, messages in self._agenda.take_due(trio.current_time()):
                if not reader.dropped:
                    reader.cached.give_back(messages)
                    self.offer(reader)

    def _postpone(self, time: float, reader: QueueReader, messages: list[ReceivedMessage]) -> None:
        """Let messages be taken at `time`; without any, let the queue be looked at then."""
        if time < self._agenda.next_time:
            self._agenda_changed.set()
        self._agenda.add(time, (reader, messages))

    def _take(self, reader: QueueReader) -> list[ReceivedMessage]:
        """The next messages of a queue for the listener; none while its calls are paused."""
        if reader.dropped or reader.is_leaving:
            return []
        if not reader.back_off.allows(trio.current_time(), reader.running):
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

    async def _fail(
        self, reader: QueueReader, messages: list[ReceivedMessage], began: float
    ) -> None:
        """Keep messages for another try here, or send them back."""
        now = trio.current_time()
        pause = reader.back_off.failed(began, now, messages[0].message_id)
        if pause:
            _log.warning(
                "the listener of group %s fails again and again; %s waits %g s for the next call",
                self._group,
                reader.queue,
                pause,
            )
            self._postpone(now + pause, reader, [])
        for message in messages:
            failures = reader.cached.count_failure(message)
            if not self._gives_back and failures < LOCAL_TRIES:
                self._postpone(now + delay_seconds(failures), reader, [message])
            elif reader.back_off.is_closed and failures < LOCAL_TRIES:
                reader.cached.give_back([message])
            else:
                await self._send_back(reader, message)

    async def _send_back(self, reader: QueueReader, message: ReceivedMessage) -> None:
        """Give a message back; it is done here once the broker has taken it."""
        if not self._gives_back:
            _log.warning("message %s failed and is dropped (broadcast)", message.message_id)
            reader.cached.done([message])
            return
        command = requests.send_back(
            self._group,
            message.physical_offset,
            origin_message_id=message.message_id,
            origin_topic=message.topic,
            most_times=self._most_times,
        )
        failures = 0
        while not reader.dropped:
            try:
                await call_master(self._client, message.queue, command, "take a message back")
            except RequestRefused as error:
                if error.code not in NOT_NOW_CODES:
                    _log.warning("%s; consuming it here again", error)
                    self._postpone(trio.current_time() + LOCAL_RETRY_SECONDS, reader, [message])
                    return
                problem: MessagingError | RemotingError = error
            except (MessagingError, RemotingError) as error:
                problem = error
            else:
                reader.cached.done([message])
                return
            failures += 1
            _log.info("message %s not given back yet: %s", message.message_id, problem)
            await trio.sleep(pause_seconds(failures))
