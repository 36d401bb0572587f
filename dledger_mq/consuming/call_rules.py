"""When the listener may be called, and what becomes of messages with which it failed."""

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

# While the listener fails for a whole queue, a message is tried here so often before it is sent
# back. Without an end, a message that always fails would never go to the dead letters if it was
# the only one of its queue.
LOCAL_TRIES: Final = 3

# The pause before a message that could not be given back is consumed again here. RocketMQ pauses
# for 5 s; giving back has already been tried for as long, and fails most often by the network.
LOCAL_RETRY_S: Final = 1.0

# Of a message that comes again: the broker chooses by how often it failed.
BY_FAILURES: Final = 0
# Of a message that does not come again: it goes to the dead letters.
NEVER: Final = -1

_NO_SCOPE: Final = nullcontext()

# Messages that wait for their time, and queues whose pause ends then, without messages. What the
# queues may cache bounds them.
Postponed: TypeAlias = Agenda[tuple[QueueReader, list[ReceivedMessage]]]


class GivingBack:
    """Gives messages of one group back.

    Args:
        client: whose connections to use.
        group: the consumer group.
        most_times: after so many repeats a message goes to the dead-letter topic.
    """

    def __init__(self, client: Client, group: str, most_times: int) -> None:
        self._client = client
        self._group = group
        self._most_times = most_times

    async def give_back(
        self, reader: QueueReader, message: ReceivedMessage, level: int = BY_FAILURES
    ) -> bool:
        """Give a message back, through elections; it is done here once the broker has taken it.

        Args:
            reader: its queue.
            message: the message.
            level: when it comes again: `BY_FAILURES` or `NEVER`.

        Returns:
            False if the broker refuses it for good, which is logged.
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
        return True  # another member has it by now


class CallRule(Protocol):
    """Decides about the calls of a listener with messages of one queue."""

    def allows(self, reader: QueueReader, now: float) -> bool:
        """Whether a call may begin. If not, the queue is offered again when that may change."""

    def scope(self, reader: QueueReader) -> AbstractContextManager[object]:
        """What the next call runs in."""

    def succeeded(self, reader: QueueReader, began: float) -> None:
        """A call that began at `began` succeeded."""

    async def failed(
        self, reader: QueueReader, messages: Sequence[ReceivedMessage], began: float
    ) -> None:
        """A call failed: keep its messages for another try here, or give them back."""


class AtOnce:
    """Many calls at once; a message that failed comes again later, after others.

    Args:
        group: the consumer group, for the log.
        postponed: where messages wait.
        giving_back: takes messages that failed; None for a broadcasting consumer, which tries each
            a few times, and drops it.
    """

    def __init__(self, group: str, postponed: Postponed, giving_back: GivingBack | None) -> None:
        self._group = group
        self._postponed = postponed
        self._giving_back = giving_back

    def allows(self, reader: QueueReader, now: float) -> bool:
        """As CallRule.allows."""
        return reader.back_off.allows(now, reader.running)

    def scope(self, reader: QueueReader) -> AbstractContextManager[object]:
        """As CallRule.scope."""
        return _NO_SCOPE

    def succeeded(self, reader: QueueReader, began: float) -> None:
        """As CallRule.succeeded."""
        reader.back_off.succeeded(began)

    async def failed(
        self, reader: QueueReader, messages: Sequence[ReceivedMessage], began: float
    ) -> None:
        """As CallRule.failed."""
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
    """One call at a time, in order: a message that failed is the next one again, after a pause.

    Source: RocketMQ's ConsumeMessageOrderlyService.

    Args:
        group: the consumer group, for the log.
        postponed: where queues wait.
        giving_back: takes messages that failed too often; None for a broadcasting consumer, which
            drops them.
        suspend_s: the pause.
        most_times: after so many failures a message goes to the dead letters; None for never.
        is_held: whether this consumer surely holds a queue; it is offered again when it does.
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
        """As CallRule.allows."""
        return not reader.running and now >= reader.resumes_at and self._is_held(reader.queue)

    def scope(self, reader: QueueReader) -> AbstractContextManager[object]:
        """As CallRule.scope: it is cancelled when the queue is lost."""
        reader.call_scope = trio.CancelScope()
        return reader.call_scope

    def succeeded(self, reader: QueueReader, began: float) -> None:
        """As CallRule.succeeded."""

    async def failed(
        self, reader: QueueReader, messages: Sequence[ReceivedMessage], began: float
    ) -> None:
        """As CallRule.failed."""
        again: list[ReceivedMessage] = []
        reader.resumes_at = math.inf  # no call while messages are given back
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
    """Pass a message over that failed too often: a broadcast has no broker that takes it back."""
    _log.warning("message %s failed and is dropped (broadcast)", message.message_id)
    reader.cached.done([message])
