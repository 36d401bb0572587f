"""Answers operators' requests about the progress of groups (300, 303, 308, 314, 343, 345).

Source: RocketMQ's AdminBrokerProcessor.
"""

from typing import Final

from broker.consumers.members import CONSUMERS
from broker.errors import RequestRefused
from broker.offsets.commands import CommittedOffset
from broker.offsets.commits import OFFSET_COMMITS
from broker.offsets.room import OFFSET_ROOM
from broker.offsets.state import OFFSETS
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.store.message_reader import MESSAGE_READER
from broker.topics.names import check_group_name
from broker.topics.state import TOPICS
from remoting.bodies.pieces import pieces
from remoting.net.answering import Steps
from remoting.wire.command import Command
from remoting.wire.loose_json import JsonValue, compact_json

# Means "behind the others" in the answer to 308: Java's Long.MAX_VALUE.
_BEHIND: Final = (1 << 63) - 1

# Each takes four reads of the log, 10 us each.
_QUEUES_A_STEP: Final = 16

_NAMES_A_STEP: Final = 128
_OFFSETS_A_STEP: Final = 128

# Of one request: folding so many takes some milliseconds.
MAX_CLONED_OFFSETS: Final = 5_000


class InspectionProcessor:
    def __init__(self, parts: Parts) -> None:
        self._topics = parts.state[TOPICS]
        self._offsets = parts.state[OFFSETS]
        self._consumers = parts[CONSUMERS]
        self._reader = parts[MESSAGE_READER]
        self._commits = parts[OFFSET_COMMITS]
        self._room = parts[OFFSET_ROOM]
        self._broker_name = parts.config.group
        self._wall_clock_ms = parts.wall_clock_ms

    def groups_of_topic(self, _origin: Origin, command: Command) -> Steps:
        """List the groups that subscribe to a topic now, or have consumed it (300)."""
        topic = command.name("topic")
        groups: set[str] = set()
        for keys in pieces(self._offsets.tables.of_topic(topic), _NAMES_A_STEP):
            groups.update(group for group, _ in keys)
            yield
        for piece in pieces(self._consumers.groups(), _NAMES_A_STEP):
            groups.update(one for one in piece if self._consumers.subscribes(one, topic))
            yield
        return command.reply(body=compact_json({"groupList": sorted(groups)}).encode())

    def topics_of_group(self, _origin: Origin, command: Command) -> Steps:
        """List the topics that a group subscribes to now, or has consumed (343)."""
        group = command.name("group")
        topics: set[str] = set()
        for keys in pieces(self._offsets.tables.of_group(group), _NAMES_A_STEP):
            topics.update(topic for _, topic in keys)
            yield
        members = self._consumers.group(group)
        if members is not None:
            topics.update(members.subscriptions)
        return command.reply(body=compact_json({"topicList": sorted(topics)}).encode())

    def subscription(self, _origin: Origin, command: Command) -> Command:
        group, topic = command.name("group"), command.name("topic")
        found = self._consumers.subscription(group, topic)
        body: dict[str, JsonValue] = {
            "group": group,
            "subscriptionData": None if found is None else found.to_json(),
            "topic": topic,
        }
        return command.reply(body=compact_json(body).encode())

    def correction_offsets(self, _origin: Origin, command: Command) -> Steps:
        """Return the offset of the slowest group of a topic in each queue (308).

        Groups in `filterGroups` do not count, nor do offsets of dropped messages. For a queue in
        which `compareGroup` is behind that, the answer is the largest number. RocketMQ deletes the
        offsets of the groups in `filterGroups`.
        """
        topic, compared = command.name("topic"), command.name("compareGroup")
        left_out = set(command.fields.get("filterGroups", "").split(","))
        slowest: dict[int, int] = {}
        tables = self._offsets.tables
        begins: dict[int, int] = {}
        looked_at = 0
        for key in list(tables.of_topic(topic)):
            if looked_at > _OFFSETS_A_STEP:
                looked_at = 0
                yield
            queues = {} if key[0] in left_out else tables.get(key, {})
            looked_at += 1 + len(queues)
            for queue_id, offset in queues.items():
                begin = begins.get(queue_id)
                if begin is None:
                    begin = begins[queue_id] = self._reader.begin(topic, queue_id)
                if offset >= begin:
                    slowest[queue_id] = min(offset, slowest.get(queue_id, offset))
        for queue_id, offset in self._offsets.tables.get((compared, topic), {}).items():
            if queue_id in slowest and slowest[queue_id] > offset:
                slowest[queue_id] = _BEHIND
        table = {str(queue_id): slowest[queue_id] for queue_id in sorted(slowest)}
        return command.reply(body=compact_json({"correctionOffsets": table}).encode())

    def time_spans(self, _origin: Origin, command: Command) -> Steps:
        """Return for each queue the time of its messages, and how long the next one has waited
        (303).

        Raises RequestRefused (17): no such topic.
        """
        config, group = self._topics.found(command.name("topic")), command.name("group")
        spans: list[str] = []
        for queue_ids in pieces(range(config.read_queue_count), _QUEUES_A_STEP):
            spans += [compact_json(self._time_span(group, config.topic, one)) for one in queue_ids]
            yield
        return command.reply(body=f'{{"consumeTimeSpanSet":[{",".join(spans)}]}}'.encode())

    def _time_span(self, group: str, topic: str, queue_id: int) -> JsonValue:
        begin, end = self._reader.begin(topic, queue_id), self._reader.end(topic, queue_id)
        committed = self._offsets.committed(group, topic, queue_id) or 0
        oldest, newest = (
            self._reader.store_timestamp_ms(topic, queue_id, at) or 0 for at in (begin, end - 1)
        )
        done = self._reader.store_timestamp_ms(topic, queue_id, max(begin, committed - 1)) or 0
        waiting = self._reader.store_timestamp_ms(topic, queue_id, max(begin, committed))
        delay_ms = 0 if waiting is None else max(0, self._wall_clock_ms() - waiting)
        return {
            "consumeTimeStamp": done,
            "delayTime": delay_ms,
            "maxTimeStamp": newest,
            "messageQueue": {
                "brokerName": self._broker_name,
                "queueId": queue_id,
                "topic": topic,
            },
            "minTimeStamp": oldest,
        }

    def clone_offsets(self, origin: Origin, command: Command) -> Steps:
        """Copy the offsets of one group to another (314): in one topic, or in all.

        Raises RequestRefused: (2) too many wait or are stored, (26) the group has no offsets, (29)
        a bad name.
        """
        source, target = command.name("srcGroup"), command.name("destGroup")
        topic = command.name("topic", "")
        check_group_name(target)
        tables = self._offsets.tables
        wanted = [key for key in tables.of_group(source) if topic in ("", key[1])]
        if not wanted:
            raise RequestRefused.no_group(
                f"group {source:.80} has no offsets{f' in {topic:.80}' if topic else ''}"
            )
        if sum(len(tables[key]) for key in wanted) > MAX_CLONED_OFFSETS:
            raise RequestRefused.busy(
                f"group {source:.80} has more than {MAX_CLONED_OFFSETS} offsets: clone one topic "
                "after the other"
            )
        offsets: list[CommittedOffset] = []
        for piece in pieces(wanted):
            for key in piece:
                queues = tables.get(key, {})
                offsets += [CommittedOffset(target, key[1], *one) for one in queues.items()]
            yield
        if not offsets:
            raise RequestRefused.no_group(f"group {source:.80} was deleted")
        self._room.take(origin, command, [(target, key[1]) for key in wanted])
        if self._commits.is_full:
            raise RequestRefused.busy("[OVERLOAD]too many offsets wait: clone again")
        done = replying(origin, command)
        for one in offsets[:-1]:
            self._commits.add(one, None)
        self._commits.add(offsets[-1], done)  # all are in one entry, or in adjacent ones
        self._commits.flush()
        return None
