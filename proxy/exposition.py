"""The figures of a proxy as Prometheus metrics."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from proxy.server import Proxy


def metrics_of(proxy: Proxy) -> Iterator[Metric]:
    for name, text, value in (
        ("connections", "Connections that are open.", proxy.figures.connections),
        ("clients", "Clients that were heard of lately.", len(proxy.sessions)),
        ("renewed", "Messages whose invisible times are renewed.", len(proxy.renewals)),
    ):
        yield GaugeMetricFamily(f"dledger_proxy_{name}", text, value=value)
    running = GaugeMetricFamily(
        "dledger_proxy_calls_now", "Calls that are being answered.", labels=("method",)
    )
    for method, count in sorted(proxy.figures.calls.items()):
        running.add_metric((method,), count)
    yield running
    ended = CounterMetricFamily("dledger_proxy_calls", "Calls that have ended.", labels=("method",))
    for method, count in sorted(proxy.figures.ended.items()):
        ended.add_metric((method,), count)
    yield ended
