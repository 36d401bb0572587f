"""The lags of all consumer groups and topics, the largest first."""

import logging
from collections.abc import Iterator
from heapq import heappush, heappushpop
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from broker.messages.state import MESSAGES
from broker.offsets.state import OFFSETS
from broker.serving.parts import Parts, Shared
from broker.topics.state import TOPICS
from remoting.bodies.pieces import pieces

_log = logging.getLogger(__name__)

# Lags in one answer: 5 us each, in one step.
MAX_LAGS: Final = 5_000

# Queues whose ends one step compares with offsets.
_QUEUES_A_STEP: Final = 1_024

# Steps of a scrape. If there are more, they are taken beside other work, and scrapes are answered
# from what was found last.
STEPS_OF_A_SCRAPE: Final = 16

# How long they are looked for after a scrape.
_WANTED_S: Final = 300.0


class Lag(NamedTuple):
    """How far a group is behind in a topic.

    `messages`: how many it has not consumed, over all readable queues.
    """

    messages: int
    group: str
    topic: str


class Lags(NamedTuple):
    """The lags of a broker.

    Attributes:
        largest: at most `MAX_LAGS`.
        left_out: how many more there are: smaller ones.
    """

    largest: list[Lag]
    left_out: int


class LagsLook:
    """Finds the lags, on the leader."""

    def __init__(self, parts: Parts) -> None:
        self._messages = parts.state[MESSAGES]
        self._topics = parts.state[TOPICS]
        self._tables = parts.state[OFFSETS].tables
        self._work = parts.work
        self._clock = parts.clock
        self._found: Lags | None = None
        self._asked_at = -inf  # when a scrape could not take all steps
        self._is_looking = False

    def now(self) -> Lags:
        """Return the lags as of now. If there are many: those of some ten seconds ago, or none at
        the first scrape.
        """
        if self._clock() - self._asked_at > _WANTED_S:
            self._found = None
            steps = sum(1 for _ in islice(self._looking(), STEPS_OF_A_SCRAPE))
            if steps < STEPS_OF_A_SCRAPE and self._found is not None:
                return self._found
        self._asked_at = self._clock()
        if self._found is None:
            self.look_over()
        return self._found or Lags([], 0)

    def look_over(self) -> None:
        """Look in steps, if scrapes need it: every ten seconds."""
        if self._clock() - self._asked_at <= _WANTED_S and not self._is_looking:
            self._is_looking = True
            self._work.later("looking for the lags of groups", self._looking_beside())

    def _looking_beside(self) -> Iterator[None]:
        steps = 0
        try:
            for _ in self._looking():
                steps += 1
                yield
        finally:
            self._is_looking = False
        if steps < STEPS_OF_A_SCRAPE:
            self._asked_at = -inf  # scrapes can take them again

    def _looking(self) -> Iterator[None]:
        largest: list[Lag] = []
        there = queues = 0
        for keys in pieces(self._tables.listed(), _QUEUES_A_STEP // 4):
            for group, topic in keys:
                config = self._topics.configs.get(topic)
                offsets = self._tables.get((group, topic))
                if config is None or offsets is None:
                    continue
                there += 1
                ends = self._messages.queue_ends.get(topic, {})  # without those without messages
                begin, readable = self._messages.begins.get(topic, 0), config.read_queue_count
                behind = sum(
                    max(0, end - offsets.get(queue_id, begin))
                    for queue_id, end in ends.items()
                    if queue_id < readable
                )
                lag = Lag(behind, group, topic)
                if len(largest) < MAX_LAGS:
                    heappush(largest, lag)
                else:
                    heappushpop(largest, lag)
                queues += len(ends)
                if queues > _QUEUES_A_STEP:
                    queues = 0
                    yield
            yield
        self._found = Lags(sorted(largest, reverse=True), there - len(largest))


LAGS: Final = Shared("lags", LagsLook)


class LagsNotice:
    """Logs that lags are left out: when that begins, not at every scrape."""

    def __init__(self) -> None:
        self._is_said = False

    def look(self, left_out: int) -> None:
        if left_out and not self._is_said:
            _log.warning(
                "the metrics leave out the lags of %d groups and topics, the smallest: there are "
                "too many for one answer (rocketmq_metric_rows_left_out counts them)",
                left_out,
            )
        self._is_said = left_out > 0
