"""Where the queues of deleted topics ended. A topic created again under the name begins there.

So an offset never changes its meaning. Offsets of the deleted topic that a client remembers,
commits or pulls lie before all messages of the new one. A pull from there is answered with the new
beginning (21), as after retention, and every client handles that. RocketMQ counts from 0 again: old
offsets then lay behind the new messages, and consumers skipped them.
"""

from dataclasses import dataclass, field
from typing import Final

# They cost 2 MB of memory, and 0.5 MB of each snapshot.
MAX_ENDED_TOPICS: Final = 20_000


@dataclass(slots=True)
class EndedTopics:
    """The deleted topics that had messages, or did not begin at 0.

    Attributes:
        ends: by topic, in the order of deletion: the largest end of its queues.
        forgotten_end: the largest end among forgotten topics. Beyond MAX_ENDED_TOPICS the oldest
            are forgotten, on every member alike, and topics of new names begin here.
    """

    ends: dict[str, int] = field(default_factory=dict)
    forgotten_end: int = 0

    def add(self, topic: str, end: int) -> None:
        """Add a deleted topic; `end` is the largest end of its queues."""
        if end:
            self.ends[topic] = end
        if len(self.ends) > MAX_ENDED_TOPICS:
            self.forgotten_end = max(self.forgotten_end, self.ends.pop(next(iter(self.ends))))

    def take(self, topic: str) -> int:
        """Return the offset at which the queues of a created topic begin."""
        return self.ends.pop(topic, self.forgotten_end)
