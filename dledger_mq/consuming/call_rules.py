"""When the listener may be called, and what happens to messages that it failed with."""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol, TypeAlias

import trio

from dledger_mq.connection import requests
from dledger_mq.connection.calls import NOT_NOW_CODES, call_master, pause_s
from dledger_mq.connection.client import Client
from dledger_mq.consuming.agenda import Agenda
from dledger_mq.consuming.back_off import delay_s
from dledger_mq.consuming.queue_reader import QueueReader
from dledger_mq.errors import MessagingError, RequestRefused
from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# While the listener fails for a whole queue, each message is tried here this often before it is
# sent back. Without a limit, a message that always fails would never become a dead letter if it was
# the only one of its queue.
LOCAL_TRIES: Final = 3

# The pause before a message that could not be sent back is consumed again here. RocketMQ pauses for
# 5 s; here sending back was tried for as long, and most often fails because of the network.
LOCAL_RETRY_S: Final = 1.0

# Delay levels of a message that is sent back: the broker chooses one by the number of failures, or
# the message becomes a dead letter.
BY_FAILURES: Final = 0
NEVER: Final = -1

_NO_SCOPE: Final = nullcontext()

# Messages that wait for their redelivery, and queues (without messages) that wait for the end of a
# pause. The limits of `CachedQueue` bound them.
Postponed: TypeAlias = Agenda[tuple[QueueReader, list[ReceivedMessage]]]


class GivingBack:
    """Sends messages of one group back to their brokers.

    After `most_times` redeliveries a message goes to the dead-letter topic.
    """

    def __init__(self, client: Client, group: str, most_times: int) -> None:
        self._client = client
        self._group = group
        self._most_times = most_times

    async def give_back(
        self, reader: QueueReader, message: ReceivedMessage, level: int = BY_FAILURES
    ) -> bool:
        """Send a message back, through elections; it is done here once the broker has taken it.

        `level` is `BY_FAILURES` or `NEVER`. Returns False if the broker refuses for good, which is
        logged.
        """
        command = requests.send_back(
            self._group,
            message.physical_offset,
            origin_message_id=message.message_id,
            origin_topic=message.topic,
            most_times=self._most_times,
            delay_level=level,
        )
        failures = 0
        while not reader.dropped:
            try:
                await call_master(self._client, message.queue, command, "take a message back")
            except RequestRefused as error:
                if error.code not in NOT_NOW_CODES:
                    _log.warning("%s; consuming it here again", error)
                    return False
                problem: MessagingError | RemotingError = error
            except (MessagingError, RemotingError) as error:
                problem = error
            else:
                reader.cached.done([message])
                return True
            failures += 1
            _log.info("message %s not given back yet: %s", message.message_id, problem)
            await trio.sleep(pause_s(failures))
        return True  # another member has the queue by now


class CallRule(Protocol):
    """Decides about the calls of a listener with messages of one queue."""

    def allows(self, reader: QueueReader, now: float) -> bool:
        """Return whether a call may begin. If not, the queue is offered again when that may
        change.
        """

    def scope(self, reader: QueueReader) -> AbstractContextManager[object]: ...

    def succeeded(self, reader: QueueReader, began: float) -> None: ...

    async def failed(
        self, reader: QueueReader, messages: Sequence[ReceivedMessage], began: float
    ) -> None:
        """Handle a failed call: keep its messages for another try here, or send them back."""


class AtOnce:
    """Many calls at once; a message that failed is redelivered later, after others.

    A broadcasting consumer has no `giving_back`: it tries each message a few times and then drops
    it.
    """

    def __init__(self, group: str, postponed: Postponed, giving_back: GivingBack | None) -> None:
        self._group = group
        self._postponed = postponed
        self._giving_back = giving_back

    def allows(self, reader: QueueReader, now: float) -> bool:
        return reader.back_off.allows(now, reader.running)

    def scope(self, reader: QueueReader) -> AbstractContextManager[object]:
        return _NO_SCOPE

    def succeeded(self, reader: QueueReader, began: float) -> None:
        reader.back_off.succeeded(began)

    async def failed(
        self, reader: QueueReader, messages: Sequence[ReceivedMessage], began: float
    ) -> None:
        now = trio.current_time()
        back_off_s = reader.back_off.failed(began, now, messages[0].message_id)
        if back_off_s:
            _log.warning(
                "the listener of group %s fails again and again; %s waits %g s for the next call",
                self._group,
                reader.queue,
                back_off_s,
            )
            self._postponed.add(now + back_off_s, (reader, []))
        for message in messages:
            failures = reader.cached.count_failure(message)
            if self._giving_back is None and failures < LOCAL_TRIES:
                self._postponed.add(now + delay_s(failures), (reader, [message]))
            elif reader.back_off.is_closed and failures < LOCAL_TRIES:
                reader.cached.give_back([message])
            elif self._giving_back is None:
                drop_broadcast(reader, message)
            elif not await self._giving_back.give_back(reader, message):
                self._postponed.add(trio.current_time() + LOCAL_RETRY_S, (reader, [message]))


class InOrder:
    """One call at a time, in order: after a pause a message that failed is tried again first.

    After `most_times` failures (None: never) it becomes a dead letter by `giving_back`; a
    broadcasting consumer has none, and drops it. A queue for which `is_held` is false is offered
    again once its lock is surely held. Source: RocketMQ's ConsumeMessageOrderlyService.
    """

    def __init__(
        self,
        group: str,
        postponed: Postponed,
        giving_back: GivingBack | None,
        suspend_s: float,
        most_times: int | None,
        is_held: Callable[[MessageQueue], bool],
    ) -> None:
        self._group = group
        self._postponed = postponed
        self._giving_back = giving_back
        self._suspend_s = suspend_s
        self._most_times = most_times
        self._is_held = is_held

    def allows(self, reader: QueueReader, now: float) -> bool:
        return not reader.running and now >= reader.resumes_at and self._is_held(reader.queue)

    def scope(self, reader: QueueReader) -> AbstractContextManager[object]:
        """Return a scope that is cancelled when the lock of the queue is lost."""
        reader.call_scope = trio.CancelScope()
        return reader.call_scope

    def succeeded(self, reader: QueueReader, began: float) -> None: ...

    async def failed(
        self, reader: QueueReader, messages: Sequence[ReceivedMessage], began: float
    ) -> None:
        again: list[ReceivedMessage] = []
        reader.resumes_at = math.inf  # no call while messages are sent back
        for message in messages:
            is_last_try = (
                self._most_times is not None and message.reconsume_times >= self._most_times
            )
            if not is_last_try:
                message.reconsume_times += 1
                again.append(message)
            elif self._giving_back is None:
                drop_broadcast(reader, message)
            else:
                _log.warning(
                    "the listener of group %s failed %d times with message %s of %s: "
                    "it goes to the dead letters",
                    self._group,
                    message.reconsume_times + 1,
                    message.message_id,
                    reader.queue,
                )
                if not await self._giving_back.give_back(reader, message, NEVER):
                    again.append(message)
        reader.resumes_at = trio.current_time()
        if again:
            reader.resumes_at += self._suspend_s
            reader.cached.put_back(again)
            self._postponed.add(reader.resumes_at, (reader, []))


def drop_broadcast(reader: QueueReader, message: ReceivedMessage) -> None:
    """Drop a message that failed too often: broadcasts are not sent back."""
    _log.warning("message %s failed and is dropped (broadcast)", message.message_id)
    reader.cached.done([message])
