"""Answers requests about the progress of queues and consumer groups (202, 208, 317).

Source: RocketMQ's AdminBrokerProcessor.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from broker.consumers.members import CONSUMERS
from broker.errors import RequestRefused
from broker.groups.state import GROUPS
from broker.offsets.state import OFFSETS
from broker.pulls.pulled_offsets import PULLED_OFFSETS
from broker.serving.needs import Action, Need
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.store.message_reader import MESSAGE_READER
from broker.topics.needs import group_need, topic_need
from broker.topics.state import TOPICS
from broker.traffic.traffic import TRAFFIC
from remoting.bodies.message_queue import MessageQueue, queue_keyed_row
from remoting.bodies.pieces import pieces
from remoting.net.answering import Steps
from remoting.wire.command import Command
from remoting.wire.errors import FieldMissing
from remoting.wire.field_values import is_name
from remoting.wire.loose_json import compact_json

# Queues in one answer about all groups (317): each takes a read of the log, some 20 us.
MAX_TOLD_QUEUES: Final = 5_000

# Queues in one answer about one group (208): each takes some 200 bytes, and a frame holds 16 MiB.
MAX_TOLD_QUEUES_OF_GROUP: Final = 40_000

_QUEUES_A_STEP: Final = 32


class Statistics:
    def __init__(self, parts: Parts) -> None:
        self._topics = parts.state[TOPICS]
        self._groups = parts.state[GROUPS]
        self._offsets = parts.state[OFFSETS]
        self._reader = parts[MESSAGE_READER]
        self._consumers = parts[CONSUMERS]
        self._pulled = parts[PULLED_OFFSETS]
        self._traffic = parts[TRAFFIC]
        self._broker_name = parts.config.group
        self._address = str(parts.config.address)

    def topic_stats(self, _origin: Origin, command: Command) -> Steps:
        """Return the first and last offset of each queue of a topic, and its rate of messages
        (202).
        """
        config = self._topics.found(command.name("topic"))
        count = max(config.read_queue_count, config.write_queue_count)
        rows: list[str] = []
        for queue_id in range(count):
            end = self._reader.end(config.topic, queue_id)
            newest = self._reader.store_timestamp_ms(config.topic, queue_id, end - 1) if end else 0
            offsets = {
                "lastUpdateTimestamp": newest or 0,
                "maxOffset": end,
                "minOffset": self._reader.begin(config.topic, queue_id),
            }
            queue = MessageQueue(config.topic, self._broker_name, queue_id)
            rows.append(queue_keyed_row((queue, offsets)))
            if queue_id % _QUEUES_A_STEP == 0:
                yield
        per_second = round(self._traffic.put_per_second(config.topic), 2)
        body = f'{{"offsetTable":{{{",".join(rows)}}},"topicPutTps":{per_second}}}'
        return command.reply(body=body.encode())

    @staticmethod
    def needs(command: Command) -> Sequence[Need]:
        """Need to look at the group, and at the topics that are named: it may never have consumed
        them, and the answer has the ends of their queues.
        """
        group = group_need(command.name("consumerGroup"), Action.GET, Action.SUB)
        named = {*_listed_topics(command), command.name("topic", "")} - {""}
        return (group, *[topic_need(one, Action.GET, Action.SUB) for one in sorted(named)])

    def consume_stats(self, _origin: Origin, command: Command) -> Steps:
        """Return a group's lag queue by queue (208): in all its topics, or in those named.

        The topics of a group with members are those to which it subscribes now; else those that it
        has consumed.

        Raises RequestRefused (2): too many queues for one answer.
        """
        name = command.name("consumerGroup")
        listed = _listed_topics(command)
        asked = listed or [one for one in [command.name("topic", "")] if one]
        group = self._consumers.group(name)
        consumed = {topic for _, topic in self._offsets.tables.of_group(name)}
        topics = set(asked) if asked else consumed | set(group.subscriptions if group else ())
        if group is not None and not listed:
            topics &= group.subscriptions.keys()
        rows: list[str] = []
        per_second = 0.0
        for topic in sorted(topics):
            per_second += self._traffic.given_per_second(name, topic)
            for part in self._topic_stats(name, topic):
                rows += map(queue_keyed_row, part)
                yield
            if len(rows) > MAX_TOLD_QUEUES_OF_GROUP:
                raise RequestRefused.busy(
                    f"group {name:.80} has offsets of more than {MAX_TOLD_QUEUES_OF_GROUP} queues: "
                    "ask topic by topic (consumerProgress -g -t)"
                )
        per_second = round(per_second, 2)
        body = f'{{"offsetTable":{{{",".join(rows)}}},"consumeTps":{per_second}}}'
        return command.reply(body=body.encode())

    def all_consume_stats(self, _origin: Origin, command: Command) -> Steps:
        """Return the lags of all groups (317), or only those in ordered topics.

        Raises RequestRefused (2): too many queues for one answer.
        """
        only_ordered = command.boolean("isOrder")
        told: list[tuple[str, str]] = []
        count = 0
        for pairs in pieces(self._offsets.tables.listed()):
            for name, topic in pairs:
                queues = self._told_queues(name, topic, only_ordered)
                if queues:
                    told.append((name, topic))
                    count += queues
            yield
            if count > MAX_TOLD_QUEUES:
                raise RequestRefused.busy(
                    f"groups have offsets of more than {MAX_TOLD_QUEUES} queues: ask group by "
                    "group (consumerProgress -g)"
                )
        total = in_flight = 0
        texts: list[str] = []
        for name, topics in groupby(sorted(told), itemgetter(0)):
            tables: list[str] = []
            for _name, topic in topics:
                rows: list[str] = []
                for part in self._topic_stats(name, topic):
                    for _queue, row in part:
                        total += row["brokerOffset"] - row["consumerOffset"]
                        in_flight += row["pullOffset"] - row["consumerOffset"]
                    rows += map(queue_keyed_row, part)
                    yield
                per_second = round(self._traffic.given_per_second(name, topic), 2)
                tables.append(f'{{"consumeTps":{per_second},"offsetTable":{{{",".join(rows)}}}}}')
            texts.append(f"{{{compact_json(name)}:[{','.join(tables)}]}}")
        body = (
            f'{{"brokerAddr":{compact_json(self._address)},"consumeStatsList":[{",".join(texts)}],'
            f'"totalDiff":{total},"totalInflightDiff":{in_flight}}}'
        )
        return command.reply(body=body.encode())

    def _told_queues(self, group: str, topic: str, only_ordered: bool) -> int:
        config, members = self._topics.configs.get(topic), self._consumers.group(group)
        if (
            group not in self._groups.configs
            or config is None
            or (only_ordered and not config.order)
            or (members is not None and topic not in members.subscriptions)
        ):
            return 0
        return config.read_queue_count

    def _topic_stats(
        self, group: str, topic: str
    ) -> Iterator[list[tuple[MessageQueue, Mapping[str, int]]]]:
        config = self._topics.configs.get(topic)
        for queue_ids in pieces(
            range(0 if config is None else config.read_queue_count), _QUEUES_A_STEP
        ):
            yield [self._queue_stats(group, topic, queue_id) for queue_id in queue_ids]

    def _queue_stats(
        self, group: str, topic: str, queue_id: int
    ) -> tuple[MessageQueue, dict[str, int]]:
        committed = self._offsets.committed(group, topic, queue_id)
        if committed is None:
            committed = self._reader.first(topic)
        last = self._reader.store_timestamp_ms(topic, queue_id, committed - 1) if committed else 0
        pulled = self._pulled.of(group, topic, queue_id)
        return MessageQueue(topic, self._broker_name, queue_id), {
            "brokerOffset": self._reader.end(topic, queue_id),
            "consumerOffset": committed,
            "lastTimestamp": last or 0,
            "pullOffset": max(committed, pulled or 0),
        }


def _listed_topics(command: Command) -> list[str]:
    """Return the topics that the request names. Raises FieldMissing: one is no name."""
    listed = command.fields.get("topicList", "")
    names = [one for one in listed.split(";") if one]
    if not all(map(is_name, names)):
        raise FieldMissing("topicList", listed)
    return names
