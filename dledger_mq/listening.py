"""Running the listener: a fixed number of tasks takes messages of all queues in turn."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import trio

from dledger_mq import requests
from dledger_mq.calls import NOT_NOW_CODES, call_master
from dledger_mq.client import Client
from dledger_mq.errors import MessagingError, RequestRefused
from dledger_mq.message import ConsumeResult, ReceivedMessage
from dledger_mq.pauses import pause_seconds
from dledger_mq.queue_reader import QueueReader
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# Gets at least one message, of one queue. None is SUCCESS; what it raises is RETRY.
Listener: TypeAlias = Callable[[Sequence[ReceivedMessage]], Awaitable[ConsumeResult | None]]

# RocketMQ's pause before a message that could not be given back is consumed again here.
LOCAL_RETRY_SECONDS: Final = 5.0


class Listening:
    """The tasks that run a consumer's listener.

    Args:
        client: for giving messages back.
        group: the consumer group.
        listener: the user's function.
        batch_size: how many messages it gets at most.
        gives_back: a message that failed is given back to the broker; a broadcasting consumer
            only logs it, as in RocketMQ.
        most_times: after so many repeats a message goes to the dead-letter topic.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        listener: Listener,
        *,
        batch_size: int,
        gives_back: bool,
        most_times: int,
    ) -> None:
        self._client = client
        self._group = group
        self._listener = listener
        self._batch_size = batch_size
        self._gives_back = gives_back
        self._most_times = most_times
        self._ready: deque[QueueReader] = deque()
        self._idle = trio.lowlevel.ParkingLot()
        self._busy = 0
        self._quiet = trio.Event()
        self._stopping = False

    def offer(self, reader: QueueReader) -> None:
        """Messages wait in a queue."""
        if reader not in self._ready:
            self._ready.append(reader)
        self._idle.unpark(count=max(1, reader.cached.waiting // self._batch_size))

    async def stop(self, timeout_seconds: float) -> None:
        """Take nothing more, and wait for the listeners that run.

        Args:
            timeout_seconds: how long; what runs then is cancelled with the consumer.
        """
        self._stopping = True
        with trio.move_on_after(timeout_seconds):
            while self._busy:
                self._quiet = trio.Event()
                await self._quiet.wait()

    async def work(self) -> None:
        """One of the tasks, for ever."""
        while True:
            while self._stopping or not self._ready:
                await self._idle.park()
            reader = self._ready.popleft()
            messages = reader.cached.take(self._batch_size)
            if reader.cached.waiting:
                self._ready.append(reader)
            if reader.dropped or not messages:
                continue
            self._busy += 1
            try:
                await self._consume(reader, messages)
            finally:
                self._busy -= 1
                if not self._busy:
                    self._quiet.set()
            # A listener that never waits must not keep the others from running.
            await trio.lowlevel.checkpoint()

    async def _consume(self, reader: QueueReader, messages: list[ReceivedMessage]) -> None:
        """Run the listener and do what it says."""
        try:
            result = await self._listener(messages)
        except Exception:
            _log.exception("the listener of group %s failed", self._group)
            result = ConsumeResult.RETRY
        if reader.dropped:
            # Another member reads the queue from the committed offset on, and gets these again.
            return
        if result is ConsumeResult.RETRY:
            for message in messages:
                await self._retry(reader, message)
        else:
            reader.cached.done(messages)
        reader.has_room()

    async def _retry(self, reader: QueueReader, message: ReceivedMessage) -> None:
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
                    await trio.sleep(LOCAL_RETRY_SECONDS)
                    reader.cached.give_back([message])
                    self.offer(reader)
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
