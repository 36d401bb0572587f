"""Metrics for Prometheus, of brokers that are configured to serve them."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from broker.metrics.lags import LagsNotice, lags_of
from broker.serving.member import MEMBER
from broker.serving.parts import Parts
from broker.serving.service import Service
from dledger import serve_metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def service(parts: Parts) -> Service:
    if parts.config.metrics is None:
        return Service()
    return Service(tasks=(partial(_serve, parts, str(parts.config.metrics)),))


async def _serve(parts: Parts, address: str) -> None:
    """Answer scrapers. Raises AddressInUse."""
    # Imported here, because prometheus_client takes an eighth of a member's start.
    from broker.metrics.exposition import BrokerMetrics

    notice = LagsNotice()

    def collect() -> "Iterable[Metric]":
        lags = None if parts.led_term() is None else lags_of(parts.state)
        if lags is not None:
            notice.look(lags.left_out)
        return BrokerMetrics(parts, lags).collect()

    await serve_metrics(lambda: [parts[MEMBER].node], address, more=collect)
