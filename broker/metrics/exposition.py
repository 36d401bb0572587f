"""The counters of a broker and the lags of its groups as Prometheus metrics.

Names are those of RocketMQ 5. Source: its BrokerMetricsConstant.
"""

from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from broker.consumers.members import CONSUMERS
from broker.delay.state import DELAYS
from broker.groups.state import GROUPS
from broker.messages.state import MESSAGES
from broker.metrics.lags import Lags
from broker.producers.members import PRODUCERS
from broker.serving.parts import Parts
from broker.topics.names import is_system_topic
from broker.topics.state import TOPICS
from broker.traffic.traffic import TRAFFIC, Counted
from broker.transactions.state import TRANSACTIONS
from remoting.message.topic_names import RETRY_PREFIX, UNDELIVERED_TOPIC

# Rows of a counter metric, which take some ten milliseconds. Of more topics and groups, the most
# recently used are shown.
MAX_ROWS: Final = 1_000

_LABELS: Final = ("cluster", "node_id")
_BY_TOPIC: Final = (*_LABELS, "topic", "is_system")
_BY_GROUP: Final = (*_LABELS, "topic", "consumer_group", "is_retry")


class BrokerMetrics:
    """Makes the metrics of one broker.

    `lags`: None if this member does not serve.
    """

    def __init__(self, parts: Parts, lags: Lags | None) -> None:
        self._state = parts.state
        self._traffic = parts[TRAFFIC]
        self._consumers = parts[CONSUMERS]
        self._producers = parts[PRODUCERS]
        self._lags_told = lags
        # RocketMQ's `node_id` is the group of brokers.
        self._broker = (parts.config.cluster, parts.config.group)
        self._left_out: dict[str, int] = {}  # rows, by metric

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. Only the leader has lags and connections."""
        yield from self._counted()
        yield from self._folded()
        if self._lags_told is not None:
            yield from self._lags(self._lags_told)
            yield from self._connections()
        yield self._rows_left_out()

    def _counted(self) -> Iterator[Metric]:
        for name, counted, text in (
            ("rocketmq_messages_in", Counted.TOPIC_PUT_NUMS, "Messages stored."),
            ("rocketmq_throughput_in", Counted.TOPIC_PUT_SIZE, "Bytes stored."),
        ):
            family = CounterMetricFamily(name, text, labels=_BY_TOPIC)
            for topic, total in self._totals(name, counted):
                family.add_metric((*self._broker, topic, _truth(is_system_topic(topic))), total)
            yield family
        for name, counted, text in (
            ("rocketmq_messages_out", Counted.GROUP_GET_NUMS, "Messages given to consumers."),
            ("rocketmq_throughput_out", Counted.GROUP_GET_SIZE, "Bytes given to consumers."),
        ):
            family = CounterMetricFamily(name, text, labels=_BY_GROUP)
            for key, total in self._totals(name, counted):
                topic, _, group = key.partition("@")
                family.add_metric(self._by_group(topic, group), total)
            yield family
        family = CounterMetricFamily(
            "rocketmq_send_to_dlq_messages",
            "Messages given up.",
            labels=(*_LABELS, "consumer_group"),
        )
        for group, total in self._totals(family.name, Counted.DLQ_PUT_NUMS):
            family.add_metric((*self._broker, group), total)
        yield family

    def _totals(self, name: str, counted: Counted) -> Iterable[tuple[str, int]]:
        """Return totals by key, of the most recently used counters."""
        counters = list(self._traffic.counters(counted))
        found = nlargest(MAX_ROWS, counters, lambda row: row[1].last_second)
        self._left_out[name] = len(counters) - len(found)
        return [(key, counter.sum) for key, counter in found]

    def _rows_left_out(self) -> Metric:
        gauge = GaugeMetricFamily(
            "rocketmq_metric_rows_left_out",
            "Rows that this scrape leaves out of a metric.",
            labels=(*_LABELS, "metric"),
        )
        for name, rows in self._left_out.items():
            gauge.add_metric((*self._broker, name), rows)
        return gauge

    def _folded(self) -> Iterator[Metric]:
        """Yield metrics of the folded state, which are equal on all members."""
        transactions, delays = self._state[TRANSACTIONS], self._state[DELAYS]
        for name, text, value in (
            ("topic_number", "Topics.", len(self._state[TOPICS].configs)),
            ("consumer_group_number", "Consumer groups.", len(self._state[GROUPS].configs)),
            ("half_messages", "Transactions that are open.", len(transactions.halves)),
            ("timing_messages", "Messages that wait for their time.", len(delays.waiting)),
        ):
            gauge = GaugeMetricFamily(f"rocketmq_{name}", text, labels=_LABELS)
            gauge.add_metric(self._broker, value)
            yield gauge
        for name, text, value in (
            ("commit_messages", "Transactions committed.", transactions.committed),
            ("rollback_messages", "Transactions rolled back.", transactions.rolled_back),
            ("timer_dequeue", "Delayed messages delivered.", delays.delivered),
            (
                "undelivered_messages",
                "Messages that stand in for copies which no entry of the log could hold.",
                self._state[MESSAGES].queue_end(UNDELIVERED_TOPIC, 0),
            ),
        ):
            counter = CounterMetricFamily(f"rocketmq_{name}", text, labels=_LABELS)
            counter.add_metric(self._broker, value)
            yield counter

    def _lags(self, lags: Lags) -> Iterator[Metric]:
        gauge = GaugeMetricFamily(
            "rocketmq_consumer_lag_messages",
            "Messages that a group has not consumed.",
            labels=_BY_GROUP,
        )
        for lag in lags.largest:
            gauge.add_metric(self._by_group(lag.topic, lag.group), lag.messages)
        self._left_out[gauge.name] = lags.left_out
        yield gauge

    def _connections(self) -> Iterator[Metric]:
        for name, text, count in (
            ("producer_connections", "Producers, counted once a group.", len(self._producers)),
            ("consumer_connections", "Consumers, counted once a group.", len(self._consumers)),
        ):
            gauge = GaugeMetricFamily(f"rocketmq_{name}", text, labels=_LABELS)
            gauge.add_metric(self._broker, count)
            yield gauge

    def _by_group(self, topic: str, group: str) -> tuple[str, ...]:
        return (*self._broker, topic, group, _truth(topic.startswith(RETRY_PREFIX)))


def _truth(value: bool) -> str:
    return "true" if value else "false"
