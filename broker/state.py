"""What the log says: topics, groups, offsets and the ends of queues. Equal logs, equal states."""

from dataclasses import dataclass, field, fields

from broker.group import ConsumerGroup
from broker.queue_locks import QueueLocks
from broker.time_marks import TimeMarks
from broker.topics import FIRST_TOPICS
from remoting.bodies.topic_config import TopicConfig


@dataclass(slots=True)
class BrokerState:
    """The folded log. Only `broker.fold` changes it.

    Attributes:
        topics: by name.
        created_at: where in the log the entry that created a topic begins; nothing for topics that
            entries before version 3 created.
        groups: consumer groups by name.
        offsets: by (group, topic): queue id -> offset of the next message to consume.
        queue_ends: by topic: queue id -> offset that its next message will have.
        topic_changes: how often the topics changed; tells name servers that they did.
        topics_changed_ms: when they changed last.
        store_timestamp_ms: of the newest message. New ones are never older, so that a search by
            time is a binary search, whatever the clocks of successive leaders say.
        messages: how many records were folded.
        log_end: position of the byte behind the last entry.
        refused_entries: how many entries were passed over, because no broker can have written them.
        kept_from: the first entry of the log that is kept; 0 while nothing was ever dropped.
        kept_position: where that entry begins. No message before it can be read.
        time_marks: which part of the log is how old.
        locks: which queues ordered consumers have locked.
    """

    topics: dict[str, TopicConfig] = field(default_factory=lambda: dict(FIRST_TOPICS))
    created_at: dict[str, int] = field(default_factory=dict)
    groups: dict[str, ConsumerGroup] = field(default_factory=dict)
    offsets: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    queue_ends: dict[str, dict[int, int]] = field(default_factory=dict)
    topic_changes: int = 0
    topics_changed_ms: int = 0
    store_timestamp_ms: int = 0
    messages: int = 0
    log_end: int = 0
    refused_entries: int = 0
    kept_from: int = 0
    kept_position: int = 0
    time_marks: TimeMarks = field(default_factory=TimeMarks)
    locks: QueueLocks = field(default_factory=QueueLocks)

    def become(self, other: "BrokerState") -> None:
        """Take over all of another state, which has no other owner."""
        for name in fields(self):
            setattr(self, name.name, getattr(other, name.name))

    def had_topic(self, topic: str, position: int) -> bool:
        """Whether the topic that exists now existed already at a position of the log."""
        return topic in self.topics and self.created_at.get(topic, -1) < position

    def queue_end(self, topic: str, queue_id: int) -> int:
        """The offset that the queue's next message will have."""
        ends = self.queue_ends.get(topic)
        return 0 if ends is None else ends.get(queue_id, 0)

    def committed_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next message the group wants to consume, or None if it never committed an offset."""
        table = self.offsets.get((group, topic))
        return None if table is None else table.get(queue_id)
