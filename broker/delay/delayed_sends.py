"""Stores sends of delayed messages in the topics where they wait.

Source: RocketMQ's HookUtils and ScheduleMessageService: meanwhile two properties of the message
hold its topic and its queue.
"""

from collections.abc import Callable, Mapping
from typing import Final

from broker.delay.commands import Delay
from broker.delay.due import DELAY_NAMES, LEVEL_MS, AfterLevel, Due, read_due
from broker.delay.due_counts import DueCounts
from broker.delay.state import DELAYS
from broker.errors import RequestRefused
from broker.log.command_layout import LogCommand
from broker.sends.copies import Copy
from broker.sends.pending_messages import PendingSend
from broker.serving.origin import Origin
from broker.serving.parts import Parts, Shared
from broker.settings.settings import SETTINGS
from broker.settings.user_shares import USER_SHARES
from broker.topics.names import TIMER_TOPIC
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
from remoting.message.recall_handle import recall_handle
from remoting.message.record import MessageRecord
from remoting.message.topic_names import SCHEDULE_TOPIC
from remoting.wire.command import Command


class DelayedSends:
    """Stores delayed messages. Implements `sends.special_sends.SpecialSend`."""

    names = DELAY_NAMES
    most_in_batch = 1

    def __init__(self, parts: Parts) -> None:
        self._delays = parts.state[DELAYS]
        self._own_topics = parts[OWN_TOPICS]
        self._broker_name = parts.config.group
        self._settings = parts[SETTINGS]
        self._shares = parts[USER_SHARES]
        self._of_users = DueCounts()
        self._wall_clock_ms = parts.wall_clock_ms

    def is_asked_for(self, pairs: Mapping[str, str]) -> bool:
        """Return whether the message is delayed. A transactional one is not, as in RocketMQ.

        Raises RequestRefused (13): see `read_due`.
        """
        if pairs.get(TRANSACTION_PREPARED, "").lower() == "true":
            return False
        return self._read_due(pairs) is not None

    def _read_due(self, pairs: Mapping[str, str]) -> Due | None:
        max_delay_ms = self._settings.now.max_delay_s * 1000
        return read_due(pairs, self._wall_clock_ms(), max_delay_ms)

    def prepare(self, send: PendingSend, pairs: Mapping[str, str]) -> None:
        """Delay the message of a send, and give the sender a handle to recall it.

        There is no handle for a message with a level, which cannot be recalled, as in RocketMQ.

        Raises RequestRefused (2): see `take_room`.
        """
        due = self._read_due(pairs)
        if due is None:
            return  # it became due since `is_asked_for`
        self.take_room(send.origin, send.command, due)
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

    def take_room(self, origin: Origin, command: Command, due: Due) -> None:
        """Check whether one more message may wait until it is due. Messages in flight do not count.

        Raises RequestRefused (2): too many wait already, or too many of its user.
        """
        waiting = len(self._delays.waiting)
        most = self._settings.now.limits.max_delayed_messages
        if waiting >= most:
            raise RequestRefused.busy(
                f"[OVERLOAD]{waiting} delayed messages wait already: send it when fewer do"
            )
        user = self._shares.user_of(origin, command)
        if user is None:
            return
        now_ms = self._wall_clock_ms()
        self._shares.check_held(
            user,
            lambda user: self._of_users.count(user, now_ms),
            "delayed messages",
            most,
            is_half_full=2 * waiting >= most,
        )
        due_ms = now_ms + due.delay_ms if isinstance(due, AfterLevel) else due.due_ms
        self._of_users.add(user, due_ms, now_ms)

    def delay(
        self,
        messages: PendingSend | Copy,
        due: Due,
        command: Callable[[int], LogCommand] = Delay,
    ) -> None:
        """Delay the only message of `messages`; later it goes to its topic and queue.

        Args:
            messages: the message.
            due: when it is delivered.
            command: makes the command that follows it, given the time in milliseconds since 1970.
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
        """Return when a placed record is due.

        Store times never go back: after a clock was an hour ahead, they are ahead for an hour.
        """
        if isinstance(due, AfterLevel):
            return min(record.store_timestamp, self._wall_clock_ms()) + due.delay_ms
        return due.due_ms


DELAYED_SENDS: Final = Shared("delayed sends", DelayedSends)
