"""Bodies of entries as a broker appends them, for logs that tests write."""

from __future__ import annotations

from collections import Counter

from broker.log.entry import encode_log_command
from broker.topics.commands import DeleteTopic, PutTopic
from dledger.entry import Body, PositionedBody, PositionedParts
from remoting.bodies.topic_config import TopicConfig
from remoting.message.record import MessageRecord, encode_record_parts


class BrokerBodies:
    """Appends bodies to a list; gives each message the next offset of its queue."""

    def __init__(self) -> None:
        self.bodies: list[Body] = []
        self._ends: Counter[tuple[str, int]] = Counter()

    def put_topic(self, topic: str) -> None:
        self.bodies.append(encode_log_command(PutTopic(TopicConfig(topic), 1)))

    def delete_topic(self, topic: str, *, keeps_ends: bool = False) -> None:
        self.bodies.append(encode_log_command(DeleteTopic(topic, 1, keeps_ends, keeps_ends)))
        for key in [key for key in self._ends if key[0] == topic]:
            del self._ends[key]

    def message(self, record: MessageRecord) -> None:
        """A message with the offset that it must have."""
        key = (record.topic, record.queue_id)
        record.queue_offset = self._ends[key]
        self._ends[key] += 1
        self.record(record)

    def messages(self, records: list[MessageRecord]) -> None:
        """Messages in one entry, with the offsets that they must have."""
        for record in records:
            key = (record.topic, record.queue_id)
            record.queue_offset = self._ends[key]
            self._ends[key] += 1
        parts = [PositionedBody(*encode_record_parts(record)) for record in records]
        self.bodies.append(PositionedParts(tuple(parts)))

    def record(self, record: MessageRecord) -> None:
        """A record with the offset that it has."""
        self.bodies.append(PositionedBody(*encode_record_parts(record)))

    def command(self) -> None:
        """Something that is no message."""
        self.bodies.append(b"command %d" % len(self.bodies))
