"""Shows the units of a consume queue (321).

Source: RocketMQ's AdminBrokerProcessor.queryConsumeQueue.
"""

from collections.abc import Sequence
from typing import Final

from broker.consumers.members import CONSUMERS
from broker.errors import RequestRefused
from broker.filters.state import FILTERS
from broker.pulls.request import filter_of
from broker.serving.needs import Action, Need
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.store.message_reader import MESSAGE_READER
from broker.topics.needs import group_need, topic_need
from broker.topics.state import TOPICS
from remoting.wire.command import Command
from remoting.wire.loose_json import JsonValue, compact_json

# Units in one answer: some milliseconds. mqadmin asks for ten.
MAX_UNITS: Final = 1000


class QueueUnits:
    def __init__(self, parts: Parts) -> None:
        self._topics = parts.state[TOPICS]
        self._filters = parts.state[FILTERS]
        self._consumers = parts[CONSUMERS]
        self._reader = parts[MESSAGE_READER]

    @staticmethod
    def needs(command: Command) -> Sequence[Need]:
        """Need to look at the topic, and at the group whose filter is told, if one is named."""
        topic = topic_need(command.name("topic"), Action.GET)
        group = command.name("consumerGroup", "")
        return (topic, group_need(group, Action.GET, Action.SUB)) if group else (topic,)

    def show(self, _origin: Origin, command: Command) -> Command:
        """Return the log positions of a queue's messages, and whether a group wants them by their
        tags.

        Raises RequestRefused: (1) no such queue, (29) too many units.
        """
        topic, queue_id = command.name("topic"), command.int32("queueId")
        index, count = command.integer("index"), command.int32("count")
        group = command.name("consumerGroup", "")
        config = self._topics.configs.get(topic)
        if config is None or not (
            0 <= queue_id < max(config.read_queue_count, config.write_queue_count)
        ):
            raise RequestRefused.failed(f"{queue_id}@{topic:.127} is not exist!")
        if not 0 <= count <= MAX_UNITS or index < 0:
            raise RequestRefused.invalid(
                f"{count} units from {index} on: give up to {MAX_UNITS}, from 0 on"
            )
        subscription = self._consumers.subscription(group, topic) if group else None
        filter_data: str | None = None
        if group and subscription is None:
            filter_data = f"{group}@{topic} is not online!"
        elif group and (kept := self._filters.found(group, topic)) is not None:
            filter_data = compact_json({"expression": kept.condition, "version": kept.version})
        wanted = None if subscription is None else filter_of(subscription)
        units = self._reader.units(topic, queue_id, index, count)
        rows: list[JsonValue] = [
            {
                "bitMap": None,
                "eval": wanted is not None and wanted.wants(code),
                "extendDataJson": None,
                "msg": None,
                "physicOffset": position,
                "physicSize": size,
                "tagsCode": code,
            }
            for position, size, code in units
        ]
        body: dict[str, JsonValue] = {
            "filterData": filter_data,
            "maxQueueIndex": self._reader.end(topic, queue_id),
            "minQueueIndex": self._reader.begin(topic, queue_id),
            "queueData": rows,
            "subscriptionData": None if subscription is None else subscription.to_json(),
        }
        remark = None if units else f"Index {index} of {queue_id}@{topic} is not exist!"
        return command.reply(body=compact_json(body).encode(), remark=remark)
