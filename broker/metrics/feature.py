"""Figures for Prometheus, for brokers that are told where."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from broker.consumers.members import CONSUMERS
from broker.metrics.lags import lags_of
from broker.metrics.lags_notice import LagsNotice
from broker.producers.members import PRODUCERS
from broker.serving.member import MEMBER
from broker.serving.parts import Parts
from broker.serving.service import Service
from broker.traffic.traffic import TRAFFIC
from dledger import serve_metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def service(parts: Parts) -> Service:
    """What serves clients."""
    if parts.config.metrics is None:
        return Service()
    return Service(tasks=(partial(_serve, parts, str(parts.config.metrics)),))


async def _serve(parts: Parts, address: str) -> None:
    """Answer scrapers. Raises AddressInUse."""
    # Here, not above: what makes the format takes an eighth of a member's start.
    from broker.metrics.exposition import BrokerMetrics

    notice = LagsNotice()

    def collect() -> "Iterable[Metric]":
        lags = None if parts.led_term() is None else lags_of(parts.state)
        if lags is not None:
            notice.look(lags.left_out)
        metrics = BrokerMetrics(
            parts.state,
            parts[TRAFFIC],
            parts[CONSUMERS],
            parts[PRODUCERS],
            lags,
            parts.config.cluster,
            parts.config.group,
        )
        return metrics.collect()

    await serve_metrics(lambda: [parts[MEMBER].node], address, more=collect)
