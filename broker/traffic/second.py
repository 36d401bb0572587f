"""What came to queues and what was given to groups within one second, before it is counted.

A message and a pull each count for several names. One look at each of them a second is enough, and
takes a fraction of the time that each pull and each run of entries would take.
"""

from dataclasses import dataclass

from broker.topics.names import is_system_topic


@dataclass(slots=True)
class Put:
    """What came to a queue.

    Attributes:
        is_system: whether its topic is the broker's own.
        runs: of entries that brought some.
        messages: how many came.
        size: their bytes.
        appends: that were waited for.
        took_us: how long that took, in microseconds.
    """

    is_system: bool
    runs: int = 0
    messages: int = 0
    size: int = 0
    appends: int = 0
    took_us: int = 0


@dataclass(slots=True)
class Given:
    """What a group was given of a queue.

    Attributes:
        pulls: answered with messages.
        messages: in them.
        size: their bytes.
        took_us: how long the reads took, in microseconds.
    """

    pulls: int = 0
    messages: int = 0
    size: int = 0
    took_us: int = 0


class Second:
    """One second.

    Args:
        number: which second it is.

    Attributes:
        number: which second it is.
        puts: by topic and queue.
        given: by group, topic and queue.
        runs: of entries that brought messages.
        runs_of_users: those among them that brought one to a topic that is not the broker's own.
    """

    __slots__ = ("given", "number", "puts", "runs", "runs_of_users")

    def __init__(self, number: int) -> None:
        self.number = number
        self.puts: dict[tuple[str, int], Put] = {}
        self.given: dict[tuple[str, str, int], Given] = {}
        self.runs = 0
        self.runs_of_users = 0

    def __len__(self) -> int:
        """How many queues, and queues of groups, it has."""
        return len(self.puts) + len(self.given)

    def put(self, key: tuple[str, int]) -> Put:
        """What came to a queue, by topic and queue id."""
        put = self.puts.get(key)
        if put is None:
            put = self.puts[key] = Put(is_system_topic(key[0]))
        return put

    def given_to(self, group: str, topic: str, queue_id: int) -> Given:
        """What a group was given of a queue."""
        key = (group, topic, queue_id)
        given = self.given.get(key)
        if given is None:
            given = self.given[key] = Given()
        return given
