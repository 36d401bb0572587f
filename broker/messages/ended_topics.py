"""Where the queues of deleted topics ended: a topic made again under the name begins there.

So an offset has one meaning for ever. What a client remembers, commits or pulls of the topic that
was deleted lies before all messages of the new one: a pull from there is answered with the new
beginning (21), as it is where retention has dropped what was asked for, and every client knows
that. Counting from 0 again, as RocketMQ does, an old offset lay behind the new messages, and
consumers skipped them.
"""

from dataclasses import dataclass, field
from typing import Final

# They cost 2 MB of memory, and 0.5 MB of each snapshot.
MAX_ENDED_TOPICS: Final = 20_000


@dataclass(slots=True)
class EndedTopics:
    """The deleted topics that had messages, or began behind 0.

    Attributes:
        ends: by name, in the order of their deletion: behind the last message of all queues.
        forgotten_end: no topic that is not known any more ended behind it. Beyond MAX_ENDED_TOPICS
            the oldest are forgotten, on every member alike, and topics of new names begin here.
    """

    ends: dict[str, int] = field(default_factory=dict)
    forgotten_end: int = 0

    def add(self, topic: str, end: int) -> None:
        """A topic was deleted; no queue of it ended behind `end`."""
        if end:
            self.ends[topic] = end
        if len(self.ends) > MAX_ENDED_TOPICS:
            self.forgotten_end = max(self.forgotten_end, self.ends.pop(next(iter(self.ends))))

    def take(self, topic: str) -> int:
        """A topic is made: the offset that its queues begin with."""
        return self.ends.pop(topic, self.forgotten_end)
