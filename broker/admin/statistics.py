"""Answers how far queues and consumer groups are (202, 208).

Source: RocketMQ's AdminBrokerProcessor.
"""

from broker.consumers.members import Consumers
from broker.log.state import BrokerState
from broker.offsets.state import OFFSETS
from broker.pulls.pulled_offsets import PulledOffsets
from broker.serving.origin import Origin
from broker.store.message_reader import MessageReader
from broker.topics.state import TOPICS
from broker.traffic.traffic import Traffic
from remoting.bodies.message_queue import MessageQueue, encode_queue_keyed
from remoting.wire.command import Command


class Statistics:
    """Counts messages by queue offsets.

    Args:
        state: the applied state.
        reader: reads messages.
        consumers: the members of consumer groups.
        pulled: how far groups have pulled.
        traffic: how much they get.
        broker_name: the group of brokers this one belongs to.
    """

    def __init__(
        self,
        state: BrokerState,
        reader: MessageReader,
        consumers: Consumers,
        pulled: PulledOffsets,
        traffic: Traffic,
        broker_name: str,
    ) -> None:
        self._topics = state[TOPICS]
        self._offsets = state[OFFSETS]
        self._reader = reader
        self._consumers = consumers
        self._pulled = pulled
        self._traffic = traffic
        self._broker_name = broker_name

    def topic_stats(self, _origin: Origin, command: Command) -> Command:
        """The first and last offset of each queue of a topic (202)."""
        config = self._topics.found(command.text("topic"))
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
        """How far a group is behind, queue by queue (208)."""
        name = command.text("consumerGroup")
        asked = command.fields.get("topic", "")
        topics = {topic for group, topic in self._offsets.tables if group == name}
        group = self._consumers.group(name)
        if group is not None:
            topics.update(group.subscriptions)
        pairs: list[tuple[MessageQueue, object]] = []
        per_second = 0.0
        for topic in sorted(topics):
            config = self._topics.configs.get(topic)
            if config is None or (asked and topic != asked):
                continue
            per_second += self._traffic.given_per_second(name, topic)
            for queue_id in range(config.read_queue_count):
                pairs.append(self._queue_stats(name, topic, queue_id))
        consume_tps = {"consumeTps": round(per_second, 2)}
        return command.reply(body=encode_queue_keyed("offsetTable", pairs, consume_tps))

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
            "pullOffset": committed if pulled is None else pulled,
        }
