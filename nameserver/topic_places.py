"""The broker names that serve each topic, within the limits of all topics."""

from collections import deque
from collections.abc import Callable, Collection, Mapping

from nameserver import limits
from nameserver.brokers import BrokerName
from nameserver.errors import TableFull
from remoting.bodies.pieces import ROWS_A_STEP
from remoting.bodies.route import QueueData

# Topics forgotten in one step, which takes less than a millisecond.
_TOPICS_A_STEP = 256


class TopicPlaces:
    """The broker names of each topic.

    Topics of a broker name that is gone are forgotten in steps. Until then they are in the counts
    and in lists of topics, but in no route.

    Args:
        names: the broker names, with their queues.

    Attributes:
        changes: grows with each place that is made, changed or forgotten.
        on_leaving: called when topics of brokers that are gone remain: call `forget_some`.
    """

    def __init__(self, names: Mapping[str, BrokerName]) -> None:
        self._names = names
        self._topics: dict[str, set[str]] = {}
        self._places = 0  # topics, counted once for each broker name
        self._characters = 0  # of their names
        self._leaving: deque[tuple[str, list[str]]] = deque()
        self.changes = 0
        self.on_leaving: Callable[[], None] | None = None

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    @property
    def topics(self) -> Collection[str]:
        return self._topics.keys()

    @property
    def counts(self) -> tuple[int, int, int]:
        """Topics; topics counted once for each broker name; the characters of their names."""
        return len(self._topics), self._places, self._characters

    def names_of(self, topic: str) -> list[str]:
        """Return the broker names that serve a topic."""
        known = self._names
        found = self._topics.get(topic, ())
        return [name for name in found if name in known and topic in known[name].queues]

    def is_long(self, topic: str) -> bool:
        """Return whether so many brokers serve a topic that its route is better sent in parts."""
        return len(self._topics.get(topic, ())) > ROWS_A_STEP and bool(self.names_of(topic))

    def check_room(self, topics: int, places: int, characters: int) -> None:
        """Raise TableFull if there is no room for so many more."""
        if len(self._topics) + topics > limits.MAX_TOPICS:
            raise TableFull("topics", limits.MAX_TOPICS)
        if self._places + places > limits.MAX_TOPIC_PLACES:
            raise TableFull("topics of all broker names", limits.MAX_TOPIC_PLACES)
        if self._characters + characters > limits.MAX_TOPIC_CHARACTERS_IN_ALL:
            raise TableFull("characters of topics", limits.MAX_TOPIC_CHARACTERS_IN_ALL)

    def put(self, topic: str, name: BrokerName, queue: QueueData) -> None:
        """Set the queues of a topic on a broker name.

        Raises TableFull: registrations that are taken at the same time, in steps, have left no room
        for a topic that there was room for when it was checked.
        """
        before = name.queues.get(topic)
        if before == queue:
            return
        if before is None:
            self.check_room(int(topic not in self._topics), 1, len(topic))
            self._places += 1
            self._characters += len(topic)
            self._topics.setdefault(topic, set()).add(queue.broker_name)
        self.changes += 1
        name.queues[topic] = queue

    def remove(self, topic: str, broker_name: str) -> None:
        """Remove a topic from a broker name that is known."""
        if self._names[broker_name].queues.pop(topic, None) is not None:
            self._forget(topic, broker_name)

    def leave(self, broker_name: str, topics: list[str]) -> None:
        """Forget the topics of a broker name that is gone, in steps."""
        is_first = not self._leaving
        self._leaving.append((broker_name, topics))
        if is_first:  # not for each of many that leave together
            self.forget_some()
        if self._leaving and self.on_leaving is not None:
            self.on_leaving()

    def forget_some(self) -> bool:
        """Forget some topics of brokers that are gone; return whether more remain."""
        room = _TOPICS_A_STEP
        while self._leaving and room > 0:
            broker_name, topics = self._leaving[0]
            now, topics[-room:] = topics[-room:], []
            room -= len(now)
            for topic in now:
                self._forget(topic, broker_name)
            if not topics:
                self._leaving.popleft()
        return bool(self._leaving)

    def _forget(self, topic: str, broker_name: str) -> None:
        self.changes += 1
        self._places -= 1
        self._characters -= len(topic)
        names = self._topics.get(topic)
        name = self._names.get(broker_name)
        if names is not None and (name is None or topic not in name.queues):
            names.discard(broker_name)
            if not names:
                del self._topics[topic]
