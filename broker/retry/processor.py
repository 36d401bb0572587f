"""Answers consumers that send a message back (36).

Source: RocketMQ's AbstractSendMessageProcessor.
"""

from collections.abc import Sequence
from typing import Final

from broker.delay.delayed_sends import DELAYED_SENDS
from broker.delay.due import LEVEL_MS, AfterLevel
from broker.errors import RequestRefused
from broker.groups.changes import GROUP_CHANGES
from broker.groups.config import max_times
from broker.groups.state import GROUPS
from broker.log.append_outcome import not_leader
from broker.log.one_by_one import failure
from broker.retention.full_disk import FULL_DISK
from broker.retry.copies import dead_letter_properties, retry_properties
from broker.sends.copies import COPIES, Copy, StandIn
from broker.sends.sends import SENDS
from broker.serving.needs import Action, Need
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.settings.settings import SETTINGS
from broker.settings.user_shares import USER_SHARES
from broker.store.message_needs import message_needs
from broker.store.message_reader import MESSAGE_READER
from broker.topics.names import check_group_name, created_for_group, dead_letter_topic, retry_topic
from broker.topics.needs import group_need
from broker.topics.state import TOPICS
from broker.traffic.traffic import TRAFFIC
from remoting.bodies.topic_config import PERMISSION_WRITE
from remoting.message.properties import DELAY_TIME_LEVEL, RETRY_TOPIC, edit_properties
from remoting.message.record import decode_record
from remoting.wire.command import Command
from remoting.wire.field_values import saturated_int32

# Names the step in log lines.
_WHAT: Final = "storing a message that was sent back"


class RetryProcessor:
    """Stores messages that could not be consumed in their group's retry or dead letter topic."""

    def __init__(self, parts: Parts) -> None:
        self._topics = parts.state[TOPICS]
        self._groups = parts.state[GROUPS]
        self._sends = parts[SENDS]
        self._copies = parts[COPIES]
        self._group_changes = parts[GROUP_CHANGES]
        self._shares = parts[USER_SHARES]
        self._reader = parts[MESSAGE_READER]
        self._delayed = parts[DELAYED_SENDS]
        self._disk = parts[FULL_DISK]
        self._settings = parts[SETTINGS]
        self._traffic = parts[TRAFFIC]
        self._broker_name = parts.config.group
        self._turn = 0

    def needs(self, command: Command) -> Sequence[Need]:
        """Need to consume in the group, and the message's topic."""
        record = self._reader.record_at(command.integer("offset"))
        group = group_need(command.name("group"), Action.SUB)
        return (group, *message_needs(record, Action.SUB))

    def send_back(self, origin: Origin, command: Command) -> Command | None:
        """Deliver a message again that a consumer could not consume, or make it a dead letter.

        Raises RequestRefused: (1) no such message, (2) too many messages are delayed already, (14)
        the disk is too full, (16) clients may not send, or not to the group's retry or dead letter
        topic, (26) no such group, and none is created, (29) a bad group name.
        """
        self._disk.check()
        self._settings.check_writable()
        group = command.name("group")
        position = command.integer("offset")
        level = command.int32("delayLevel")
        # Read here: in the callback of the log a malformed field would count as a defect.
        said_times = max_times(command, command.int32("maxReconsumeTimes", -1))
        check_group_name(group)
        record = self._reader.record_at(position)
        if record is None:
            raise RequestRefused.failed(
                f"look message by offset failed, {position}: no message of this broker is there"
            )

        def store(refusal: RequestRefused | None) -> None:
            try:
                if refusal is not None:
                    raise refusal
                self._store_back(origin, command, group, level, said_times, record)
                self._sends.flush()
            except Exception as error:
                told = error if isinstance(error, RequestRefused) else failure(_WHAT, error)
                origin.send(told.reply_to(command))

        self._group_changes.ensure_group(group, store, self._shares.user_of(origin, command))
        return None

    def _store_back(
        self,
        origin: Origin,
        command: Command,
        group: str,
        level: int,
        said_times: int | None,
        body: bytes,
    ) -> None:
        """Store a copy of a message in the retry or dead letter topic."""
        config = self._groups.configs.get(group)
        if config is None:
            raise not_leader(self._broker_name)  # deleted meanwhile; a retry creates it again
        if config.retry_queue_count <= 0:
            origin.send(command.reply())  # the group wants failed messages to be dropped
            return
        record, _end = decode_record(body)
        came_from = record.topic
        allowed = config.retry_max_times if said_times is None else said_times
        pairs = record.property_map()
        times = saturated_int32(record.reconsume_times)
        if level < 0 or times >= allowed:
            topic = created_for_group(dead_letter_topic(group))
            changes = dead_letter_properties(record, pairs)
            due = None
        else:
            topic = created_for_group(retry_topic(group), config.retry_queue_count)
            changes = retry_properties(record, pairs)
            # RocketMQ's ladder: 10 s after the first failure, then 30 s, 1 min, ... 2 h.
            due = AfterLevel(min(level or 3 + times, len(LEVEL_MS)))
        record.properties = edit_properties(record.properties, changes, (DELAY_TIME_LEVEL,))
        record.reconsume_times = saturated_int32(times + 1)
        self._turn += 1
        topic = self._topics.configs.get(topic.topic, topic)
        if not topic.permission & PERMISSION_WRITE:
            raise RequestRefused.forbidden(f"the topic[{topic.topic}] sending message is forbidden")
        queue_id = self._turn % topic.write_queue_count

        def stored() -> Command:
            origin_topic = pairs.get(RETRY_TOPIC, "")
            is_known = origin_topic in self._topics.configs  # the client wrote the property
            self._traffic.sent_back(group, origin_topic if is_known else came_from)
            return command.reply()

        what, done = f"a message that group {group} sent back", replying(origin, command, stored)
        copy = Copy(what, topic.topic, queue_id, record, done, StandIn())
        if due is not None:
            self._delayed.take_room(origin, command, due)
            self._delayed.delay(copy, due)
        self._copies.store_when_created(topic, copy)
