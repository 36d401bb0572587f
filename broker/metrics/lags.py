"""The lags of all consumer groups and topics, the largest first."""

import logging
from heapq import nlargest
from typing import Final, NamedTuple

from broker.log.state import BrokerState
from broker.messages.state import MESSAGES
from broker.offsets.state import OFFSETS
from broker.topics.state import TOPICS

_log = logging.getLogger(__name__)

# Queues whose ends are compared with offsets: 0.2 us each, in a step that may take 50 ms.
MAX_QUEUES: Final = 100_000
# Lags in one answer: 5 us each, in the same step.
MAX_LAGS: Final = 5_000


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
        left_out: how many more there are: smaller ones, or of queues beyond `MAX_QUEUES`.
    """

    largest: list[Lag]
    left_out: int


def lags_of(state: BrokerState) -> Lags:
    messages, configs = state[MESSAGES], state[TOPICS].configs
    found: list[Lag] = []
    there, left = 0, MAX_QUEUES
    for (group, topic), offsets in state[OFFSETS].tables.items():
        config = configs.get(topic)
        if config is None:
            continue
        there += 1
        ends = messages.queue_ends.get(topic, {})  # a queue without messages is not in it
        left -= len(ends)
        if left < 0:
            continue
        begin, readable = messages.begins.get(topic, 0), config.read_queue_count
        behind = sum(
            max(0, end - offsets.get(queue_id, begin))
            for queue_id, end in ends.items()
            if queue_id < readable
        )
        found.append(Lag(behind, group, topic))
    largest = nlargest(MAX_LAGS, found)
    return Lags(largest, there - len(largest))


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
