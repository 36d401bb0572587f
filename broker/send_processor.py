"""Answers sends (10, 310, 320) and messages that consumers send back (36)."""

from collections.abc import Callable
from typing import Final

from broker.append_outcome import not_leader
from broker.errors import RequestRefused
from broker.message_reader import MessageReader
from broker.origin import Origin
from broker.send_request import SendRequest, read_send_request
from broker.sends import PendingSend, Sends
from broker.state import BrokerState
from broker.topic_changes import TopicChanges
from broker.topics import (
    RETRY_PREFIX,
    check_group_name,
    created_for_group,
    dead_letter_topic,
    retry_topic,
)
from remoting.bodies.topic_config import PERMISSION_WRITE, TopicConfig
from remoting.message.errors import MessageMalformed
from remoting.message.message_id import message_id
from remoting.message.properties import (
    DEAD_LETTER_ORIGIN_MESSAGE_ID,
    DEAD_LETTER_ORIGIN_TOPIC,
    DELAY_TIME_LEVEL,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    edit_properties,
)
from remoting.message.record import decode_record
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

# From this version on, clients say how often a message may fail; RocketMQ 3.4.9.
_VERSION_WITH_MAX_TIMES: Final = 121


class SendProcessor:
    """Turns requests into messages for the log. Their replies leave when they are applied.

    Args:
        state, sends, changes, reader, broker_name: what it works with.
        is_refusing: whether the disk is too full for messages.
    """

    def __init__(
        self,
        state: BrokerState,
        sends: Sends,
        changes: TopicChanges,
        reader: MessageReader,
        broker_name: str,
        is_refusing: Callable[[], bool],
    ) -> None:
        self._is_refusing = is_refusing
        self._state = state
        self._sends = sends
        self._changes = changes
        self._reader = reader
        self._broker_name = broker_name
        self._turn = 0

    def send(self, origin: Origin, command: Command) -> None:
        """Take a send; it leaves for the log with the next flush of `Sends`.

        Raises:
            RequestRefused: see `read_send_request`, `TopicChanges.topic_for` and `Sends.add`; (14)
                the disk is too full, (16) the topic is not writable, (26) no such consumer
                group, (29) no such queue.
        """
        self._check_disk()
        try:
            request = read_send_request(command)
        except MessageMalformed as error:
            # Not 1, which would leave the sender in doubt whether it was stored.
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, error.reason) from None
        topic = request.topic
        if topic.startswith(RETRY_PREFIX):
            config, queue_id = self._retry_target(command, request)
        else:
            config = self._changes.topic_for(topic, request.default_topic, request.default_queues)
            queue_id = request.queue_id
        if not config.permission & PERMISSION_WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker_name}] sending message to topic {config.topic} is "
                "forbidden: it is read-only",
            )
        if queue_id < 0:
            self._turn += 1
            queue_id = self._turn % config.write_queue_count
        elif queue_id >= max(config.write_queue_count, config.read_queue_count):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"topic {config.topic} has no queue {queue_id}: refresh its route",
            )
        send = PendingSend(origin, command, config.topic, queue_id, request.records)
        self._changes.send_when_created(config, send)

    def _check_disk(self) -> None:
        if self._is_refusing():
            raise RequestRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the disk of the broker[{self._broker_name}] is full: free some of it",
            )

    def send_back(self, origin: Origin, command: Command) -> Command | None:
        """Answer a consumer that could not consume a message: deliver it again, or give it up.

        Raises:
            FieldMissing: a field it must have is missing.
            RequestRefused: (1) no such message, (14) the disk is too full, (29) a bad group name.
        """
        self._check_disk()
        group = command.text("group")
        position = command.integer("offset")
        level = command.integer("delayLevel")
        # Read here: an error that is raised when the group is in the log would end the node.
        said_max_times = _max_times(command, command.integer("maxReconsumeTimes", -1))
        check_group_name(group)
        record = self._reader.record_at(position)
        if record is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"look message by offset failed, {position}: no message of this broker is there",
            )

        def store(refusal: RequestRefused | None) -> None:
            try:
                if refusal is not None:
                    raise refusal
                self._store_back(origin, command, group, level, said_max_times, record)
                self._sends.flush()
            except RequestRefused as error:
                origin.send(command.reply(error.code, remark=error.remark))

        self._changes.ensure_group(group, store)
        return None

    def _store_back(
        self,
        origin: Origin,
        command: Command,
        group: str,
        level: int,
        max_times: int | None,
        stored: bytes,
    ) -> None:
        """Queue a copy of a stored message for the retry or the dead letter topic."""
        config = self._state.groups.get(group)
        if config is None:
            raise not_leader(self._broker_name)  # deleted meanwhile: asked again, it is made again
        if config.retry_queue_count <= 0:
            origin.send(command.reply())  # the group wants failed messages to be dropped
            return
        record, _end = decode_record(stored)
        if max_times is None:
            max_times = config.retry_max_times
        pairs = record.property_map()
        changes: dict[str, str] = {}
        if not pairs.get(RETRY_TOPIC):
            changes[RETRY_TOPIC] = record.topic
        if not pairs.get(ORIGIN_MESSAGE_ID):
            changes[ORIGIN_MESSAGE_ID] = message_id(
                record.store_host, record.store_port, record.physical_offset
            )
        if level < 0 or record.reconsume_times >= max_times:
            topic = created_for_group(dead_letter_topic(group))
            changes[DEAD_LETTER_ORIGIN_TOPIC] = pairs.get(RETRY_TOPIC) or record.topic
            changes[DEAD_LETTER_ORIGIN_MESSAGE_ID] = (
                pairs.get(ORIGIN_MESSAGE_ID) or changes[ORIGIN_MESSAGE_ID]
            )
        else:
            topic = created_for_group(retry_topic(group), config.retry_queue_count)
        record.properties = edit_properties(record.properties, changes, (DELAY_TIME_LEVEL,))
        record.reconsume_times += 1
        self._turn += 1
        topic = self._state.topics.get(topic.topic, topic)
        queue_id = self._turn % topic.write_queue_count
        send = PendingSend(
            origin, command, topic.topic, queue_id, [record], answer_with_place=False
        )
        self._changes.send_when_created(topic, send)

    def _retry_target(self, command: Command, request: SendRequest) -> tuple[TopicConfig, int]:
        """Where a consumer's own send to a retry topic goes: there, or to the dead letters."""
        name = request.topic.removeprefix(RETRY_PREFIX)
        group = self._state.groups.get(name)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}: send a heartbeat first",
            )
        max_times = _max_times(command, request.max_reconsume_times)
        if max_times is None:
            max_times = group.retry_max_times
        if request.reconsume_times > max_times:
            config = created_for_group(dead_letter_topic(name))
            return self._state.topics.get(config.topic, config), 0
        config = created_for_group(request.topic, max(1, group.retry_queue_count))
        return self._state.topics.get(config.topic, config), request.queue_id


def _max_times(command: Command, said: int | None) -> int | None:
    """How often a message may fail, as the client says; None when the group's number counts."""
    if said is None or said < 0 or command.version < _VERSION_WITH_MAX_TIMES:
        return None
    return said
