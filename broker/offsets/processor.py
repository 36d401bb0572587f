"""Answers questions about offsets: 14, 15, 29, 30, 31, 32 and 43.

Source: RocketMQ's ConsumerManageProcessor and AdminBrokerProcessor.
"""

from typing import Final

from broker.errors import RequestRefused
from broker.limits import MAX_QUEUES_PER_TOPIC
from broker.offsets.commands import CommittedOffset
from broker.offsets.commits import OFFSET_COMMITS
from broker.offsets.generations import GENERATIONS
from broker.offsets.state import OFFSETS
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.settings.settings import SETTINGS
from broker.store.message_reader import MESSAGE_READER
from broker.topics.names import check_group_name, check_topic_name
from broker.topics.state import TOPICS
from remoting.bodies.pieces import pieces
from remoting.net.answering import Steps
from remoting.wire.codes import LanguageCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json

# Of the answer about all groups (43). Frames end at 16 MiB; 100 000 groups with one queue take 3.
_MAX_TABLES_BYTES: Final = 12 * 1024 * 1024

# A table may have the offsets of 1024 queues, which take some 200 microseconds.
_TABLES_A_STEP: Final = 16

# RocketMQ 5.0.0, whose client has an exception of its own for a group without an offset.
_JAVA_VERSION_5: Final = 413

_OTHERS: Final = frozenset({LanguageCode.GO, LanguageCode.PYTHON})


def knows_refusals_of_offsets(command: Command) -> bool:
    """Whether a client knows a refusal of an offset (14) from the answer that there is none.

    Java's clients of version 4 and the C++ client do not: whatever a broker answers but an offset,
    they take it that the group has none, and a consumer that begins with a queue goes to its end.
    What the group has not consumed is then lost to it. They ask again when there is no answer.
    Source: RemoteBrokerOffsetStore.readOffset of RocketMQ 4.9 and 5.3.
    """
    if command.language == LanguageCode.JAVA:
        return command.version >= _JAVA_VERSION_5
    return command.language in _OTHERS


class OffsetProcessor:
    """Reads and commits offsets. Its reads are asked for when the group has confirmed them."""

    def __init__(self, parts: Parts) -> None:
        self._confirm = parts.confirm
        self._topics = parts.state[TOPICS]
        self._offsets = parts.state[OFFSETS]
        self._reader = parts[MESSAGE_READER]
        self._commits = parts[OFFSET_COMMITS]
        self._generations = parts[GENERATIONS]
        self._settings = parts[SETTINGS]

    def query(self, origin: Origin, command: Command) -> Command:
        """The offset a group has committed.

        A group that never committed an offset gets the first one, mostly 0, while the queue is
        young and whole, else "not found": the client then starts at the queue's end, or where it is
        configured to start.
        Clients lean on this rule of RocketMQ: a new group on a new topic misses nothing.

        Raises:
            FieldMissing: a field it must have is missing.
            RequestRefused (22): there is none.
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
        """Commit an offset; the reply comes when it is in the log.

        A negative offset changes nothing: JavaScript clients send -1 for queues without progress.
        An offset that is committed already is not written again, when the group confirms that.

        Raises:
            FieldMissing: a field it must have is missing.
            RequestRefused: (2) too much waits or is stored, (29) a bad name.
        """
        key = (command.name("consumerGroup"), command.name("topic"), command.int32("queueId"))
        offset = command.integer("commitOffset")
        if offset < 0:
            return command.reply()
        then = replying(origin, command)
        if not self._generations.counts(origin, key, offset):
            # RocketMQ's words; of a topic that was made again they are true as well.
            return command.reply(remark="Offset has been previously reset")
        if self._offsets.committed(*key) == offset:
            self._confirm(then)
            return None
        group, topic, queue_id = key
        if (group, topic) not in self._offsets.tables:
            check_group_name(group)
            check_topic_name(topic)
            if not self._offsets.tables.has_room(self._settings.now.limits.max_offset_tables):
                raise RequestRefused.busy("offsets of too many groups: delete a group first")
        # Of a queue that was taken away, too: a member that had read it tells how far it has come,
        # and the queue may be given back.
        if topic not in self._topics.configs or not 0 <= queue_id < MAX_QUEUES_PER_TOPIC:
            raise RequestRefused.invalid(
                f"there is no queue {queue_id} of topic {topic}: refresh its route"
            )
        if self._commits.is_full:
            raise RequestRefused.busy("[OVERLOAD]too many offsets wait: commit again")
        self._commits.add(CommittedOffset(*key, offset), then)
        return None

    def maximum(self, _origin: Origin, command: Command) -> Command:
        """The offset that the queue's next message will have; 0 for one never written to."""
        topic, queue_id = command.name("topic"), command.int32("queueId")
        return _offset_reply(command, self._reader.end(topic, queue_id))

    def minimum(self, _origin: Origin, command: Command) -> Command:
        """The offset of the queue's first message."""
        topic, queue_id = command.name("topic"), command.int32("queueId")
        return _offset_reply(command, self._reader.begin(topic, queue_id))

    def search(self, _origin: Origin, command: Command) -> Command:
        """The first message stored at or after a time, or for UPPER the last at or before it."""
        topic, queue_id = command.name("topic"), command.int32("queueId")
        timestamp_ms = command.integer("timestamp")
        if command.fields.get("boundaryType", "").upper() == "UPPER" and timestamp_ms < 1 << 62:
            after = self._reader.offset_at(topic, queue_id, timestamp_ms + 1)
            return _offset_reply(command, max(self._reader.begin(topic, queue_id), after - 1))
        return _offset_reply(command, self._reader.offset_at(topic, queue_id, timestamp_ms))

    def earliest_time(self, _origin: Origin, command: Command) -> Command:
        """When the queue's first message was stored, -1 when it has none."""
        topic, queue_id = command.name("topic"), command.int32("queueId")
        first = self._reader.begin(topic, queue_id)
        stored = self._reader.store_timestamp_ms(topic, queue_id, first)
        return command.reply(fields={"timestamp": str(-1 if stored is None else stored)})

    def all_offsets(self, _origin: Origin, command: Command) -> Steps:
        """Every group's offsets, as RocketMQ's tools read them.

        Raises:
            RequestRefused (2): they do not fit into one answer.
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
