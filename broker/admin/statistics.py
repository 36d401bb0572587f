"""Answers how far queues and consumer groups are (202, 208, 317).

Source: RocketMQ's AdminBrokerProcessor.
"""

from collections.abc import Mapping
from typing import Final

from broker.consumers.members import Consumers
from broker.errors import RequestRefused
from broker.groups.state import GROUPS
from broker.log.state import BrokerState
from broker.offsets.state import OFFSETS
from broker.pulls.pulled_offsets import PulledOffsets
from broker.serving.origin import Origin
from broker.store.message_reader import MessageReader
from broker.topics.state import TOPICS
from broker.traffic.traffic import Traffic
from remoting.bodies.message_queue import MessageQueue, encode_queue_keyed, queue_keyed_json
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json

# Queues in one answer about all groups (317): each takes a look at the log, 20 us or so.
MAX_TOLD_QUEUES: Final = 5_000


class Statistics:
    """Counts messages by queue offsets.

    Args:
        state: the applied state.
        reader: reads messages.
        consumers: the members of consumer groups.
        pulled: how far groups have pulled.
        traffic: how much they get.
        broker_name: the group of brokers this one belongs to.
        address: the broker's address as clients know it.
    """

    def __init__(
        self,
        state: BrokerState,
        reader: MessageReader,
        consumers: Consumers,
        pulled: PulledOffsets,
        traffic: Traffic,
        broker_name: str,
        address: str,
    ) -> None:
        self._topics = state[TOPICS]
        self._groups = state[GROUPS]
        self._offsets = state[OFFSETS]
        self._reader = reader
        self._consumers = consumers
        self._pulled = pulled
        self._traffic = traffic
        self._broker_name = broker_name
        self._address = address

    def topic_stats(self, _origin: Origin, command: Command) -> Command:
        """The first and last offset of each queue of a topic (202)."""
        config = self._topics.found(command.name("topic"))
        count = max(config.read_queue_count, config.write_queue_count)
        pairs: list[tuple[MessageQueue, object]] = []
        for queue_id in range(count):
            end = self._reader.end(config.topic, queue_id)
            newest = self._reader.store_timestamp_ms(config.topic, queue_id, end - 1) if end else 0
            offsets = {
                "lastUpdateTimestamp": newest or 0,
                "maxOffset": end,
                "minOffset": self._reader.begin(config.topic, queue_id),
            }
            pairs.append((MessageQueue(config.topic, self._broker_name, queue_id), offsets))
        return command.reply(body=encode_queue_keyed("offsetTable", pairs))

    def consume_stats(self, _origin: Origin, command: Command) -> Command:
        """How far a group is behind, queue by queue (208): in all its topics, or in those named.

        The topics of a group with members are those to which it subscribes now; else those that it
        has consumed.
        """
        name = command.name("consumerGroup")
        listed = [one for one in command.fields.get("topicList", "").split(";") if one]
        asked = listed or [one for one in [command.name("topic", "")] if one]
        group = self._consumers.group(name)
        consumed = {topic for _, topic in self._offsets.tables.of_group(name)}
        topics = set(asked) if asked else consumed | set(group.subscriptions if group else ())
        if group is not None and not listed:
            topics &= group.subscriptions.keys()
        pairs: list[tuple[MessageQueue, Mapping[str, int]]] = []
        per_second = 0.0
        for topic in sorted(topics):
            per_second += self._traffic.given_per_second(name, topic)
            pairs += self._topic_stats(name, topic)
        consume_tps = {"consumeTps": round(per_second, 2)}
        return command.reply(body=encode_queue_keyed("offsetTable", pairs, consume_tps))

    def all_consume_stats(self, _origin: Origin, command: Command) -> Command:
        """How far all groups are behind (317), or only in topics whose queues have an order.

        Raises:
            RequestRefused (2): they have too many queues to be told at once.
        """
        only_ordered = command.boolean("isOrder")
        topics: dict[str, list[str]] = {}
        count = 0
        for name, topic in sorted(self._offsets.tables):
            config = self._topics.configs.get(topic)
            group = self._consumers.group(name)
            if (
                name not in self._groups.configs
                or config is None
                or (only_ordered and not config.order)
                or (group is not None and topic not in group.subscriptions)
            ):
                continue
            topics.setdefault(name, []).append(topic)
            count += config.read_queue_count
            if count > MAX_TOLD_QUEUES:
                raise RequestRefused(
                    ResponseCode.SYSTEM_BUSY,
                    f"groups have offsets of more than {MAX_TOLD_QUEUES} queues: ask group by "
                    "group (consumerProgress -g)",
                )
        total = in_flight = 0
        texts: list[str] = []
        for name, consumed in topics.items():
            stats: list[str] = []
            for topic in consumed:
                pairs = self._topic_stats(name, topic)
                for _queue, row in pairs:
                    total += row["brokerOffset"] - row["consumerOffset"]
                    in_flight += row["pullOffset"] - row["consumerOffset"]
                per_second = round(self._traffic.given_per_second(name, topic), 2)
                table = queue_keyed_json(pairs)
                stats.append(f'{{"consumeTps":{per_second},"offsetTable":{table}}}')
            texts.append(f"{{{compact_json(name)}:[{','.join(stats)}]}}")
        body = (
            f'{{"brokerAddr":{compact_json(self._address)},"consumeStatsList":[{",".join(texts)}],'
            f'"totalDiff":{total},"totalInflightDiff":{in_flight}}}'
        )
        return command.reply(body=body.encode())

    def _topic_stats(self, group: str, topic: str) -> list[tuple[MessageQueue, Mapping[str, int]]]:
        config = self._topics.configs.get(topic)
        count = 0 if config is None else config.read_queue_count
        return [self._queue_stats(group, topic, queue_id) for queue_id in range(count)]

    def _queue_stats(
        self, group: str, topic: str, queue_id: int
    ) -> tuple[MessageQueue, dict[str, int]]:
        committed = self._offsets.committed(group, topic, queue_id) or 0
        last = self._reader.store_timestamp_ms(topic, queue_id, committed - 1) if committed else 0
        pulled = self._pulled.of(group, topic, queue_id)
        return MessageQueue(topic, self._broker_name, queue_id), {
            "brokerOffset": self._reader.end(topic, queue_id),
            "consumerOffset": committed,
            "lastTimestamp": last or 0,
            "pullOffset": max(committed, pulled or 0),
        }
