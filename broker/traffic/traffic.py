"""Counts the messages that one member has stored and given.

Names and keys are those of RocketMQ's statistics (315).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from heapq import nsmallest
from typing import Final, NamedTuple

from broker.log.folded import Folded
from broker.serving.parts import Shared
from broker.topics.names import is_system_topic
from broker.traffic.counter import Counter
from remoting.bodies.pieces import pieces
from remoting.message.topic_names import DEAD_LETTER_PREFIX

# Counters by name and key; each takes 1.1 KB.
MAX_COUNTERS: Final = 30_000

# When there are too many, this share of them is dropped: the least recently used. Finding them
# takes some milliseconds, so it is not done for each new one.
_FORGOTTEN_SHARE: Final = 16

# Queues, and queues of groups, that are counted at once. That takes some 3 ms, or 20 ms if counters
# have to be dropped.
_COUNTED_AT_ONCE: Final = 128

# A counter that is unused for so long is all zero, and is dropped.
IDLE_S: Final = 26 * 3600

# Rates are computed over these times.
RATE_S: Final = (10, 60, 600)


@dataclass(slots=True)
class Put:
    """New messages of a queue.

    Attributes:
        is_system: whether its topic is the broker's own.
        runs: runs of entries with new messages.
        size: their bytes.
        appends: appends whose time was measured.
        took_us: how long these took, in microseconds.
    """

    is_system: bool
    runs: int = 0
    messages: int = 0
    size: int = 0
    appends: int = 0
    took_us: int = 0


@dataclass(slots=True)
class Given:
    """Messages of a queue that a group was given.

    Attributes:
        pulls: answers with messages.
        size: their bytes.
        took_us: how long the reads took, in microseconds.
    """

    pulls: int = 0
    messages: int = 0
    size: int = 0
    took_us: int = 0


@dataclass(slots=True)
class Second:
    """The messages of one second, before they are counted.

    A message and a pull each count for several names. Counting once per second takes a fraction of
    the time of counting each pull and each run of entries.

    Attributes:
        number: the second.
        puts: by topic and queue.
        given: by group, topic and queue.
        runs: of entries with messages.
        runs_of_users: those with messages of a topic that is not the broker's own.
    """

    number: int
    puts: dict[tuple[str, int], Put] = field(default_factory=dict)
    given: dict[tuple[str, str, int], Given] = field(default_factory=dict)
    runs: int = 0
    runs_of_users: int = 0

    def __len__(self) -> int:
        return len(self.puts) + len(self.given)

    def put(self, key: tuple[str, int]) -> Put:
        put = self.puts.get(key)
        if put is None:
            put = self.puts[key] = Put(is_system_topic(key[0]))
        return put

    def given_to(self, group: str, topic: str, queue_id: int) -> Given:
        key = (group, topic, queue_id)
        given = self.given.get(key)
        if given is None:
            given = self.given[key] = Given()
        return given


class Counted(Enum):
    """The names of counters; comments give their keys."""

    TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"  # topic
    TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
    TOPIC_PUT_LATENCY = "TOPIC_PUT_LATENCY"  # queue@topic; microseconds
    QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"  # topic@queue
    QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
    QUEUE_GET_NUMS = "QUEUE_GET_NUMS"  # topic@queue@group
    QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
    GROUP_GET_NUMS = "GROUP_GET_NUMS"  # topic@group
    GROUP_GET_SIZE = "GROUP_GET_SIZE"
    GROUP_GET_LATENCY = "GROUP_GET_LATENCY"  # queue@topic@group; microseconds
    GROUP_ACK_NUMS = "GROUP_ACK_NUMS"  # topic@group
    GROUP_CK_NUMS = "GROUP_CK_NUMS"
    SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
    DLQ_PUT_NUMS = "DLQ_PUT_NUMS"  # group
    BROKER_PUT_NUMS = "BROKER_PUT_NUMS"  # the cluster
    BROKER_GET_NUMS = "BROKER_GET_NUMS"
    BROKER_ACK_NUMS = "BROKER_ACK_NUMS"
    BROKER_CK_NUMS = "BROKER_CK_NUMS"
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
    BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"

    @property
    def is_time(self) -> bool:
        """Whether it counts microseconds, and is shown in milliseconds."""
        return self.name.endswith("_LATENCY")


# The place of the topic in the keys of these counters; in all others it comes first.
_TOPIC_AT: Final[Mapping[Counted, int | None]] = {
    Counted.TOPIC_PUT_LATENCY: 1,
    Counted.GROUP_GET_LATENCY: 1,
    Counted.DLQ_PUT_NUMS: None,
    Counted.BROKER_PUT_NUMS: None,
    Counted.BROKER_GET_NUMS: None,
    Counted.BROKER_ACK_NUMS: None,
    Counted.BROKER_CK_NUMS: None,
    Counted.BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC: None,
    Counted.BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC: None,
}


class Sums(NamedTuple):
    """Totals since this member was started.

    Attributes:
        put: messages stored.
        found: pulls with messages.
        missed: pulls without.
        given: messages given to consumers.
    """

    put: int = 0
    put_bytes: int = 0
    found: int = 0
    missed: int = 0
    given: int = 0


class Traffic:
    """Counts on one member, while it leads.

    Args:
        clock: seconds on the monotonic clock.
        cluster: its cluster, which is the key of counters for a whole broker.

    Attributes:
        slowest_read_ms: of all reads for pulls and pops.
        forgotten: how many counters in use were dropped to make room for others.
    """

    def __init__(self, clock: Callable[[], float], cluster: str) -> None:
        self._clock = clock
        self._cluster = cluster
        self._counters: dict[tuple[Counted, str], Counter] = {}
        self._samples: deque[tuple[float, Sums]] = deque(maxlen=RATE_S[-1] + 1)
        self._second = Second(0)  # what the counters do not have yet
        self._put = self._put_bytes = self._found = self._missed = self._given = 0
        self.slowest_read_ms = 0
        self.forgotten = 0

    def __len__(self) -> int:
        self._settle()
        return len(self._counters)

    @property
    def sums(self) -> Sums:
        return Sums(self._put, self._put_bytes, self._found, self._missed, self._given)

    def stored(self, folded: Folded) -> None:
        if folded.deleted_topics:
            self._forget_topics(folded.deleted_topics)
        if not folded.arrivals:
            return
        second = self._present()
        of_users = False
        for key, arrived in folded.arrivals.items():
            put = second.put(key)
            count, size = len(arrived.sizes), sum(arrived.sizes)
            put.runs += 1
            put.messages += count
            put.size += size
            of_users = of_users or not put.is_system
            self._put += count
            self._put_bytes += size
        second.runs += 1
        second.runs_of_users += of_users

    def put_within(self, queues: Iterable[tuple[str, int]], took_s: float) -> None:
        """Count an append of messages of these queues that took so long until applied."""
        second, took_us = self._present(), int(took_s * 1e6)
        for key in queues:
            put = second.put(key)
            put.appends += 1
            put.took_us += took_us

    def given(
        self, group: str, topic: str, queue_id: int, messages: int, size: int, took_s: float
    ) -> None:
        """Count the answer to a pull whose read took so long."""
        took_us = int(took_s * 1e6)
        if took_us >= 1000 * (self.slowest_read_ms + 1):
            self.slowest_read_ms = took_us // 1000
        if not messages:
            self._missed += 1
            return
        self._found += 1
        self._given += messages
        given = self._present().given_to(group, topic, queue_id)
        given.pulls += 1
        given.messages += messages
        given.size += size
        given.took_us += took_us

    def missed(self) -> None:
        self._missed += 1

    def popped(self, group: str, topic: str) -> None:
        """Count a pop to acknowledge, for which RocketMQ stores a check point."""
        now = self.second
        self._add(now, Counted.GROUP_CK_NUMS, f"{topic}@{group}", 1)
        self._add(now, Counted.BROKER_CK_NUMS, self._cluster, 1)

    def acknowledged(self, group: str, topic: str, messages: int) -> None:
        now = self.second
        self._add(now, Counted.GROUP_ACK_NUMS, f"{topic}@{group}", messages)
        self._add(now, Counted.BROKER_ACK_NUMS, self._cluster, messages)

    def sent_back(self, group: str, topic: str) -> None:
        self._add(self.second, Counted.SNDBCK_PUT_NUMS, f"{topic}@{group}", 1)

    def counter(self, counted: Counted, key: str) -> Counter | None:
        """Return a counter; None if nothing was counted with this key."""
        self._settle()
        return self._counters.get((counted, key))

    def counters(self, counted: Counted) -> Iterator[tuple[str, Counter]]:
        self._settle()
        return ((key, one) for (kind, key), one in self._counters.items() if kind is counted)

    def given_per_second(self, group: str, topic: str) -> float:
        """Return the rate at which a group is given messages, over the last minute."""
        counter = self.counter(Counted.GROUP_GET_NUMS, f"{topic}@{group}")
        return counter.minute(self.second).per_second if counter is not None else 0.0

    def put_per_second(self, topic: str) -> float:
        """Return the rate at which messages are stored in a topic, over the last minute."""
        counter = self.counter(Counted.TOPIC_PUT_NUMS, topic)
        return counter.minute(self.second).per_second if counter is not None else 0.0

    @property
    def second(self) -> int:
        return int(self._clock())

    def sample(self) -> None:
        """Remember the sums of each second, for `rates`. Called more often than that."""
        now = self._clock()
        if not self._samples or now - self._samples[-1][0] >= 1:
            self._samples.append((now, self.sums))

    def rates(self, of: Callable[[Sums], int]) -> tuple[float, ...]:
        """Return rates per second over the last 10, 60 and 600 seconds, or since the
        first sample.
        """
        now, present = self._clock(), of(self.sums)
        rates = []
        for rate_s in RATE_S:
            began, sums = next(
                (sample for sample in self._samples if sample[0] >= now - rate_s),
                (now, self.sums),
            )
            rates.append((present - of(sums)) / (now - began) if now > began else 0.0)
        return tuple(rates)

    def let_go(self) -> Iterator[None]:
        self._settle()
        oldest = self.second - IDLE_S
        for keys in pieces(self._counters):
            for key in keys:
                counter = self._counters.get(key)
                if counter is not None and counter.last_second < oldest:
                    del self._counters[key]
            yield

    def _present(self) -> Second:
        """Return the current second, after counting the last one."""
        number, second = int(self._clock()), self._second
        if number != second.number or len(second.puts) + len(second.given) >= _COUNTED_AT_ONCE:
            self._settle()
            second = self._second = Second(number)
        return second

    def _settle(self) -> None:
        second = self._second
        if not len(second):
            return
        self._second = Second(second.number)
        now, all_put = second.number, 0
        for (topic, queue_id), put in second.puts.items():
            if put.appends:
                key = f"{queue_id}@{topic}"
                self._add(now, Counted.TOPIC_PUT_LATENCY, key, put.took_us, put.appends)
            if put.runs:
                self._count_put(now, topic, queue_id, put)
                all_put += put.messages
        if second.runs:
            self._add(now, Counted.BROKER_PUT_NUMS, self._cluster, all_put, second.runs)
        if second.runs_of_users:
            of_users = sum([put.messages for put in second.puts.values() if not put.is_system])
            name = Counted.BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC
            self._add(now, name, self._cluster, of_users, second.runs_of_users)
        for key_of_given, given in second.given.items():
            self._count_given(now, *key_of_given, given)

    def _count_put(self, now: int, topic: str, queue_id: int, put: Put) -> None:
        count, queue = put.messages, f"{topic}@{queue_id}"
        self._add(now, Counted.TOPIC_PUT_NUMS, topic, count, count)
        self._add(now, Counted.TOPIC_PUT_SIZE, topic, put.size, count)
        self._add(now, Counted.QUEUE_PUT_NUMS, queue, count, count)
        self._add(now, Counted.QUEUE_PUT_SIZE, queue, put.size, count)
        if topic.startswith(DEAD_LETTER_PREFIX):
            group = topic.removeprefix(DEAD_LETTER_PREFIX)
            self._add(now, Counted.DLQ_PUT_NUMS, group, count, put.runs)

    def _count_given(self, now: int, group: str, topic: str, queue_id: int, given: Given) -> None:
        pulls, messages = given.pulls, given.messages
        key = f"{topic}@{group}"
        self._add(now, Counted.GROUP_GET_NUMS, key, messages, pulls)
        self._add(now, Counted.GROUP_GET_SIZE, key, given.size, pulls)
        self._add(now, Counted.GROUP_GET_LATENCY, f"{queue_id}@{key}", given.took_us, pulls)
        key = f"{topic}@{queue_id}@{group}"
        self._add(now, Counted.QUEUE_GET_NUMS, key, messages, pulls)
        self._add(now, Counted.QUEUE_GET_SIZE, key, given.size, pulls)
        self._add(now, Counted.BROKER_GET_NUMS, self._cluster, messages, pulls)
        if not is_system_topic(topic):
            name = Counted.BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC
            self._add(now, name, self._cluster, messages, pulls)

    def _add(self, now: int, counted: Counted, key: str, amount: int, times: int = 1) -> None:
        counter = self._counters.get((counted, key))
        if counter is None:
            if len(self._counters) >= MAX_COUNTERS:
                self._forget_idle()
            counter = self._counters[counted, key] = Counter()
        counter.add(now, amount, times)

    def _forget_idle(self) -> None:
        counters = self._counters
        count = max(1, len(counters) // _FORGOTTEN_SHARE)
        for key in nsmallest(count, counters, key=lambda key: counters[key].last_second):
            del counters[key]
        self.forgotten += count

    def _forget_topics(self, topics: Iterable[str]) -> None:
        """Drop the counters of topics, which start again if a topic is created again."""
        self._settle()
        gone = set(topics)
        for key in [key for key in self._counters if _topic_of(*key) in gone]:
            del self._counters[key]


def _topic_of(counted: Counted, key: str) -> str | None:
    """Return the topic of a counter: groups, and the cluster, may have the name of a topic."""
    at = _TOPIC_AT.get(counted, 0)
    return None if at is None else key.split("@", at + 1)[at]


TRAFFIC: Final = Shared("traffic", lambda parts: Traffic(parts.clock, parts.config.cluster))
