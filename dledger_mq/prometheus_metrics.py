"""The metrics of producers and consumers for Prometheus."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from dledger.renamed import renamed_arguments
from dledger_mq.client_metrics import ClientMetrics
from dledger_mq.errors import SendFailed
from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.message_queue import MessageQueue

# An acknowledgement takes a millisecond, an election about one second, all attempts of a message
# three.
_SEND_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5)

# Listeners take anything from a microsecond to the time of a call of another service.
_CONSUME_S: Final = (0.0001, 0.001, 0.01, 0.1, 0.5, 1, 5, 30)


class PrometheusMetrics(ClientMetrics):
    """Counts for `prometheus_client`; one object serves all producers and consumers of a process.

    docs/client.md has a table of the metrics.

    Args:
        registry: where they are registered; prometheus_client's own by default.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        by_topic, by_group = ["topic"], ["group", "topic"]
        self._sent = counter(
            "dledger_mq_sent", "Messages acknowledged; a batch counts once.", by_topic
        )
        self._retries = counter(
            "dledger_mq_send_retries", "Attempts to send after a message's first.", by_topic
        )
        self._send_failures = counter(
            "dledger_mq_send_failures",
            "Messages not acknowledged, by the error's class.",
            ["topic", "kind"],
        )
        self._send_s = histogram(
            "dledger_mq_send_seconds",
            "From a message's first attempt to its acknowledgement.",
            by_topic,
            buckets=_SEND_S,
        )
        self._pulled = counter("dledger_mq_pulled", "Messages pulled.", by_group)
        self._pulled_bytes = counter(
            "dledger_mq_pulled_bytes", "Bytes of messages in answers to pulls.", by_group
        )
        self._lag = Gauge(
            "dledger_mq_lag",
            "Messages not consumed, at the last pull.",
            ["group", "topic", "broker", "queue"],
            registry=registry,
        )
        self._consumed = counter("dledger_mq_consumed", "Messages consumed.", by_group)
        self._redelivered = counter(
            "dledger_mq_redelivered",
            "Messages handed out that had been sent back before.",
            by_group,
        )
        self._failed = counter(
            "dledger_mq_consume_failures",
            "Messages that were not consumed and come again.",
            by_group,
        )
        self._consume_s = histogram(
            "dledger_mq_consume_seconds",
            "What a call of the listener took, or a turn of the loop.",
            by_group,
            buckets=_CONSUME_S,
        )

    @renamed_arguments(seconds="took_s")
    def sent(self, topic: str, took_s: float, attempts: int) -> None:
        self._sent.labels(topic).inc()
        self._send_s.labels(topic).observe(took_s)
        if attempts > 1:
            self._retries.labels(topic).inc(attempts - 1)

    @renamed_arguments(seconds="took_s")
    def send_failed(self, topic: str, error: SendFailed, took_s: float) -> None:
        self._send_failures.labels(topic, type(error).__name__).inc()
        if error.attempts > 1:
            self._retries.labels(topic).inc(error.attempts - 1)

    @renamed_arguments(size="size_bytes")
    def pulled(
        self, group: str, queue: MessageQueue, messages: int, size_bytes: int, lag: int
    ) -> None:
        self._pulled.labels(group, queue.topic).inc(messages)
        self._pulled_bytes.labels(group, queue.topic).inc(size_bytes)
        self._lag.labels(group, queue.topic, queue.broker_name, str(queue.queue_id)).set(lag)

    @renamed_arguments(seconds="took_s")
    def consumed(self, group: str, messages: Sequence[ReceivedMessage], took_s: float) -> None:
        self._handed_out(self._consumed, group, messages, took_s)

    @renamed_arguments(seconds="took_s")
    def failed(self, group: str, messages: Sequence[ReceivedMessage], took_s: float) -> None:
        self._handed_out(self._failed, group, messages, took_s)

    def left(self, group: str, queue: MessageQueue) -> None:
        with suppress(KeyError):  # the queue was never pulled from
            self._lag.remove(group, queue.topic, queue.broker_name, str(queue.queue_id))

    def _handed_out(
        self, counter: Counter, group: str, messages: Sequence[ReceivedMessage], took_s: float
    ) -> None:
        topic = messages[0].queue.topic
        counter.labels(group, topic).inc(len(messages))
        self._consume_s.labels(group, topic).observe(took_s)
        redelivered = sum(message.reconsume_times > 0 for message in messages)
        if redelivered:
            self._redelivered.labels(group, topic).inc(redelivered)
