"""The metrics of a broker at a scrape."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker.metrics.lags import LAGS, LagsNotice
from broker.serving.parts import Parts

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def scrapes_of(parts: Parts) -> "Callable[[], Iterable[Metric]]":
    """Return a function that collects the metrics of a broker."""
    # Imported here, because prometheus_client takes an eighth of a member's start.
    from broker.metrics.exposition import BrokerMetrics

    notice = LagsNotice()

    def collect() -> "Iterable[Metric]":
        lags = None if parts.led_term() is None else parts[LAGS].now()
        if lags is not None:
            notice.look(lags.left_out)
        return BrokerMetrics(parts, lags).collect()

    return collect
