"""Figures for Prometheus, for brokers that are told where."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.consumers.members import CONSUMERS
from broker.feature import Feature
from broker.producers.members import PRODUCERS
from broker.serving.member import MEMBER
from broker.serving.parts import Parts
from broker.serving.service import Service
from broker.store.message_reader import MESSAGE_READER
from broker.traffic.traffic import TRAFFIC
from dledger import serve_metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def _service(parts: Parts) -> Service:
    if parts.config.metrics is None:
        return Service()
    return Service(tasks=(partial(_serve, parts, str(parts.config.metrics)),))


async def _serve(parts: Parts, address: str) -> None:
    """Answer scrapers. Raises AddressInUse."""
    # Here, not above: what makes the format takes an eighth of a member's start.
    from broker.metrics.exposition import BrokerMetrics

    def collect() -> "Iterable[Metric]":
        metrics = BrokerMetrics(
            parts.state,
            parts[TRAFFIC],
            parts[MESSAGE_READER],
            parts[CONSUMERS],
            parts[PRODUCERS],
            parts.led_term() is not None,
            parts.config.cluster,
            parts.config.group,
        )
        return metrics.collect()

    await serve_metrics(lambda: [parts[MEMBER].node], address, more=collect)


FEATURE: Final = Feature(service=_service)
