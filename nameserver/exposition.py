"""The figures of a name server as Prometheus metrics."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from nameserver.figures import Figures
from nameserver.routes import RouteTable


def metrics_of(figures: Figures, routes: RouteTable) -> Iterator[Metric]:
    for name, text, value in (
        ("connections", "Connections that are open.", figures.connections),
        ("brokers", "Brokers that are registered.", len(routes.brokers.by_address)),
        ("broker_names", "Names of brokers: groups.", len(routes.brokers.by_name)),
        ("topics", "Topics that brokers have registered.", len(routes.places.topics)),
    ):
        yield GaugeMetricFamily(f"dledger_nameserver_{name}", text, value=value)
    requests = CounterMetricFamily(
        "dledger_nameserver_requests", "Requests by request code.", labels=("code",)
    )
    for code, count in sorted(figures.requests.items()):
        requests.add_metric((code,), count)
    yield requests
