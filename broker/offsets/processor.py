"""Answers requests about offsets (14, 15, 29, 30, 31, 32, 43).

Source: RocketMQ's ConsumerManageProcessor and AdminBrokerProcessor.
"""

from typing import Final

from broker.errors import RequestRefused
from broker.limits import MAX_QUEUES_PER_TOPIC
from broker.offsets.commands import CommittedOffset
from broker.offsets.commits import OFFSET_COMMITS
from broker.offsets.generations import GENERATIONS
from broker.offsets.room import OFFSET_ROOM
from broker.offsets.state import OFFSETS
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.settings.user_shares import USER_SHARES
from broker.store.message_reader import MESSAGE_READER
from broker.topics.names import check_group_name, check_topic_name
from broker.topics.state import TOPICS
from remoting.bodies.pieces import pieces
from remoting.net.answering import Steps
from remoting.wire.codes import LanguageCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json

# Of the answer with all groups (43). A frame holds 16 MiB; 100 000 groups with one queue take 3.
_MAX_TABLES_BYTES: Final = 12 * 1024 * 1024

# A table may have the offsets of 1024 queues, which take some 200 microseconds.
_TABLES_A_STEP: Final = 16

# RocketMQ 5.0.0, whose client has an exception of its own for a group without an offset.
_JAVA_VERSION_5: Final = 413

_OTHERS: Final = frozenset({LanguageCode.GO, LanguageCode.PYTHON})


def knows_refusals_of_offsets(command: Command) -> bool:
    """Return whether a client can tell a refusal (14) from the answer that the group has no offset.

    Java's clients of version 4 and the C++ client cannot: they take every answer without an offset
    as "none", and a consumer that begins with a queue goes to its end. It would lose all messages
    that the group has not consumed. These clients ask again when they get no answer. Source:
    RemoteBrokerOffsetStore.readOffset of RocketMQ 4.9 and 5.3.
    """
    if command.language == LanguageCode.JAVA:
        return command.version >= _JAVA_VERSION_5
    return command.language in _OTHERS


class OffsetProcessor:
    """Reads and commits offsets. Its reads are called after the group has confirmed them."""

    def __init__(self, parts: Parts) -> None:
        self._confirm = parts.confirm
        self._topics = parts.state[TOPICS]
        self._offsets = parts.state[OFFSETS]
        self._reader = parts[MESSAGE_READER]
        self._commits = parts[OFFSET_COMMITS]
        self._shares = parts[USER_SHARES]
        self._generations = parts[GENERATIONS]
        self._room = parts[OFFSET_ROOM]

    def query(self, origin: Origin, command: Command) -> Command:
        """Return the offset that a group has committed (14).

        A group without an offset gets the queue's first one, mostly 0, if the queue is young and
        whole. Otherwise it gets "not found": the client starts at the queue's end, or where it is
        configured to start. Clients rely on this rule of RocketMQ: a new group on a new topic
        misses nothing.

        Raises RequestRefused (22): there is no offset.
        """
        group, topic = command.name("consumerGroup"), command.name("topic")
        queue_id = command.int32("queueId")
        offset = self._offsets.committed(group, topic, queue_id)
        if offset is None:
            is_young = self._reader.is_young(topic, queue_id)
            if not is_young or not command.boolean("setZeroIfNotFound", True):
                raise RequestRefused(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, maybe this group consumer boot first",
                )
            offset = self._reader.first(topic)
        self._generations.send(origin, (group, topic, queue_id), offset)
        return _offset_reply(command, offset)

    def update(self, origin: Origin, command: Command) -> Command | None:
        """Commit an offset (15); the reply leaves when it is applied.

        A negative offset changes nothing: JavaScript clients send -1 for queues without progress.
        If the offset is committed already, the group confirms it, and nothing is written.

        Raises RequestRefused: (2) too many wait or are stored, (29) a bad name.
        """
        key = (command.name("consumerGroup"), command.name("topic"), command.int32("queueId"))
        offset = command.integer("commitOffset")
        if offset < 0:
            return command.reply()
        then = replying(origin, command)
        if not self._generations.counts(origin, key, offset):
            # RocketMQ's words. They also hold for a topic that was created again.
            return command.reply(remark="Offset has been previously reset")
        if self._offsets.committed(*key) == offset:
            self._confirm(then)
            return None
        group, topic, queue_id = key
        if (group, topic) not in self._offsets.tables:
            check_group_name(group)
            check_topic_name(topic)
            self._room.take(origin, command, [(group, topic)])
        # Also for a queue beyond the topic's number of queues: a member has read it, and the number
        # may be raised again.
        if topic not in self._topics.configs or not 0 <= queue_id < MAX_QUEUES_PER_TOPIC:
            raise RequestRefused.invalid(
                f"there is no queue {queue_id} of topic {topic}: refresh its route"
            )
        if self._commits.is_full:
            raise RequestRefused.busy("[OVERLOAD]too many offsets wait: commit again")
        self._commits.add(
            CommittedOffset(*key, offset), self._shares.counted(origin, command, then)
        )
        return None

    def maximum(self, _origin: Origin, command: Command) -> Command:
        """Return the offset of the queue's next message (30)."""
        topic, queue_id = command.name("topic"), command.int32("queueId")
        return _offset_reply(command, self._reader.end(topic, queue_id))

    def minimum(self, _origin: Origin, command: Command) -> Command:
        """Return the offset of the queue's first message (31)."""
        topic, queue_id = command.name("topic"), command.int32("queueId")
        return _offset_reply(command, self._reader.begin(topic, queue_id))

    def search(self, _origin: Origin, command: Command) -> Command:
        """Return the first message stored at or after a time, or for UPPER the last at or before it
        (29).
        """
        topic, queue_id = command.name("topic"), command.int32("queueId")
        timestamp_ms = command.integer("timestamp")
        if command.fields.get("boundaryType", "").upper() == "UPPER" and timestamp_ms < 1 << 62:
            after = self._reader.offset_at(topic, queue_id, timestamp_ms + 1)
            return _offset_reply(command, max(self._reader.begin(topic, queue_id), after - 1))
        return _offset_reply(command, self._reader.offset_at(topic, queue_id, timestamp_ms))

    def earliest_time(self, _origin: Origin, command: Command) -> Command:
        """Return when the queue's first message was stored; -1 if it has none (32)."""
        topic, queue_id = command.name("topic"), command.int32("queueId")
        first = self._reader.begin(topic, queue_id)
        stored = self._reader.store_timestamp_ms(topic, queue_id, first)
        return command.reply(fields={"timestamp": str(-1 if stored is None else stored)})

    def all_offsets(self, _origin: Origin, command: Command) -> Steps:
        """Return every group's offsets in the form that RocketMQ's tools read (43).

        Raises RequestRefused (2): they do not fit into one answer.
        """
        rows: list[str] = []
        size = 0
        tables = self._offsets.tables
        for piece in pieces(tables.listed(), _TABLES_A_STEP):
            for group, topic in piece:
                queues = tables.get((group, topic), {})
                rows.append(f"{compact_json(f'{topic}@{group}')}:{compact_json(queues)}")
                size += len(rows[-1])
            if size > _MAX_TABLES_BYTES:
                raise RequestRefused.busy(
                    f"offsets of more than {_MAX_TABLES_BYTES} bytes: ask group by group "
                    "(consumerProgress -g)"
                )
            yield
        return command.reply(body=f'{{"offsetTable":{{{",".join(rows)}}}}}'.encode())


def _offset_reply(command: Command, offset: int) -> Command:
    return command.reply(fields={"offset": str(offset)})
