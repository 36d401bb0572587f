"""Sends of messages that are for later: they are stored where they wait.

Source: RocketMQ's HookUtils and ScheduleMessageService: the message keeps its topic and its queue
in two properties meanwhile.
"""

from collections.abc import Callable, Mapping
from typing import Final

from broker.delay.commands import Delay
from broker.delay.due import DELAY_NAMES, LEVEL_MS, AfterLevel, Due, read_due
from broker.delay.recall_handle import recall_handle
from broker.delay.state import DELAYS
from broker.errors import RequestRefused
from broker.log.command_layout import LogCommand
from broker.sends.copies import Copy
from broker.sends.pending_messages import PendingSend
from broker.serving.parts import Parts, Shared
from broker.settings.settings import SETTINGS
from broker.topics.names import SCHEDULE_TOPIC, TIMER_TOPIC
from broker.topics.own_topics import OWN_TOPICS
from remoting.message.properties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_OUT_MS,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    edit_properties,
    shown_value,
)
from remoting.message.record import MessageRecord


class DelayedSends:
    """Lets messages wait. Implements `sends.special_sends.SpecialSend`."""

    names = DELAY_NAMES

    def __init__(self, parts: Parts) -> None:
        self._delays = parts.state[DELAYS]
        self._own_topics = parts[OWN_TOPICS]
        self._broker_name = parts.config.group
        self._settings = parts[SETTINGS]
        self._wall_clock_ms = parts.wall_clock_ms

    def is_asked_for(self, pairs: Mapping[str, str]) -> bool:
        """Whether the message is for later. A transactional one is not, as in RocketMQ.

        Raises:
            RequestRefused (13): see `read_due`.
        """
        if pairs.get(TRANSACTION_PREPARED, "").lower() == "true":
            return False
        return self._read_due(pairs) is not None

    def _read_due(self, pairs: Mapping[str, str]) -> Due | None:
        max_delay_ms = self._settings.now.max_delay_s * 1000
        return read_due(pairs, self._wall_clock_ms(), max_delay_ms)

    def prepare(self, send: PendingSend, pairs: Mapping[str, str]) -> None:
        """Let the message of a send wait, and tell the sender how to recall it.

        One with a level cannot be recalled, as in RocketMQ: its sender gets no handle.

        Raises:
            RequestRefused (2): so many wait that no more may. What is on its way does not count.
        """
        waiting = len(self._delays.waiting)
        if waiting >= self._settings.now.limits.max_delayed_messages:
            raise RequestRefused.busy(
                f"[OVERLOAD]{waiting} delayed messages wait already: send it when fewer do"
            )
        due = self._read_due(pairs)
        if due is None:
            return  # its time came between the two looks at the clock
        topic, record = send.topic, send.records[0]
        self.delay(send, due)
        if isinstance(due, AfterLevel):
            return
        due_ms = due.due_ms

        def replied(position: int) -> Mapping[str, str]:
            handle = recall_handle(
                topic,
                self._broker_name,
                due_ms,
                shown_value(record.property_map()[UNIQUE_KEY]),
                position,
            )
            return {"recallHandle": handle}

        send.replied = replied

    def delay(
        self,
        messages: PendingSend | Copy,
        due: Due,
        command: Callable[[int], LogCommand] = Delay,
    ) -> None:
        """Let the only message of `messages` wait, and go to its topic and queue then.

        Args:
            messages: the message.
            due: when it is delivered.
            command: makes what stands behind it, given the time in milliseconds since 1970.
        """
        (record,) = messages.records
        changes = {REAL_TOPIC: messages.topic, REAL_QUEUE_ID: str(messages.queue_id)}
        if isinstance(due, AfterLevel):
            messages.topic, messages.queue_id = SCHEDULE_TOPIC, due.level - 1
            self._own_topics.make(SCHEDULE_TOPIC, len(LEVEL_MS))
        else:
            messages.topic, messages.queue_id = TIMER_TOPIC, 0
            self._own_topics.make(TIMER_TOPIC)
            changes[TIMER_OUT_MS] = str(due.due_ms)
        record.properties = edit_properties(record.properties, changes)

        def attach(record: MessageRecord) -> LogCommand:
            return command(self._due_ms(due, record))

        messages.attach = attach

    def _due_ms(self, due: Due, record: MessageRecord) -> int:
        """When a record that has its place is due.

        Store times never go back: once a clock was an hour ahead, all are, for an hour.
        """
        if isinstance(due, AfterLevel):
            return min(record.store_timestamp, self._wall_clock_ms()) + due.delay_ms
        return due.due_ms


DELAYED_SENDS: Final = Shared("delayed sends", DelayedSends)
