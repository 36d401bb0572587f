"""A node's status and counts in the text format that Prometheus reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, chain

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from dledger.core.member_state import Role
from dledger.node.tally import SYNC_CLASSES_S, Tally
from dledger.status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABELS = ("group", "node")
_PEER_LABELS = (*_LABELS, "peer")

# The name of a field of the status, and its description.
_STATUS_GAUGES = {
    "term": "Raft term that the node is in.",
    "first_index": "First entry in the log.",
    "last_index": "Last entry in the log.",
    "durable": "Last entry that counts on this node: synced, or with a flush interval written.",
    "synced": "Last entry on this node's disk that survives a power cut.",
    "committed": "Last entry known to be on a quorum's disks.",
    "applied": "Last entry that the state machine has.",
    "pending_entries": "Appends that wait to be committed and applied.",
    "pending_bytes": "The same in bytes of bodies.",
    "newest_snapshot": "Last entry in the newest snapshot; -1 without one.",
    "scrub_passes": "Passes of the background check over the whole log.",
}
# 1 while the status has a text by that name.
_STATUS_PROBLEMS = {
    "scrub_damage": "1 when the background check found damage.",
    "disk_short": "1 while appends are refused because the disk is full.",
}
_STATUS_COUNTERS = {
    "loop_holds": "Times that the process's event loop was held for more than 50 ms.",
    "loop_held_seconds": "What these took together.",
    "refused_callers": "Callers that the process sent away unproven, or as too many.",
}
# Where the field of the status is named otherwise.
_FIELDS = {"loop_held_seconds": "loop_held_s"}
_TALLY_COUNTERS = {
    "appended_entries": "Entries taken from this node's application and clients.",
    "appended_bytes": "The same in bytes of bodies.",
    "rejected_appends": "Appends refused before they entered the log.",
}


def rendered(nodes: Iterable[tuple[Status, Tally]], more: Iterable[Metric] = ()) -> Iterator[bytes]:
    """Render the same metric by metric: a metric with a thousand rows takes ten milliseconds."""
    for metric in chain(_Nodes(list(nodes)).collect(), more):
        registry = CollectorRegistry()
        registry.register(_Made(metric))
        yield bytes(generate_latest(registry))


class _Made(Collector):
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


class _Nodes(Collector):
    def __init__(self, nodes: list[tuple[Status, Tally]]) -> None:
        self._nodes = nodes

    def collect(self) -> Iterator[Metric]:
        yield self._roles()
        yield self._ready()
        for name, text in _STATUS_GAUGES.items():
            gauge = GaugeMetricFamily(f"dledger_{name}", text, labels=_LABELS)
            for status, _ in self._nodes:
                gauge.add_metric(_names(status), getattr(status, name))
            yield gauge
        yield from self._problems()
        yield self._alarms()
        yield self._certificates()
        for name, text in (_TALLY_COUNTERS | _STATUS_COUNTERS).items():
            counter = CounterMetricFamily(f"dledger_{name}", text, labels=_LABELS)
            for status, tally in self._nodes:
                counted = status if name in _STATUS_COUNTERS else tally
                counter.add_metric(_names(status), getattr(counted, _FIELDS.get(name, name)))
            yield counter
        yield self._syncs()
        yield from self._peers()

    def _roles(self) -> Metric:
        gauge = GaugeMetricFamily(
            "dledger_role", "1 for the role that the node has.", labels=(*_LABELS, "role")
        )
        for status, _ in self._nodes:
            for role in Role:
                gauge.add_metric((*_names(status), role.value), status.role == role.value)
        return gauge

    def _ready(self) -> Metric:
        gauge = GaugeMetricFamily(
            "dledger_ready", "1 for a leader that has applied an entry of its term.", labels=_LABELS
        )
        for status, _ in self._nodes:
            gauge.add_metric(_names(status), status.ready)
        return gauge

    def _problems(self) -> Iterator[Metric]:
        for name, text in _STATUS_PROBLEMS.items():
            gauge = GaugeMetricFamily(f"dledger_{name}", text, labels=_LABELS)
            for status, _ in self._nodes:
                gauge.add_metric(_names(status), getattr(status, name) is not None)
            yield gauge

    def _alarms(self) -> Metric:
        gauge = GaugeMetricFamily(
            "dledger_alarm",
            "1 for what an operator must look at: about the node (member) or one of its peers.",
            labels=(*_LABELS, "kind", "member"),
        )
        for status, _ in self._nodes:
            for kind, member in sorted({(one.kind, one.member) for one in status.alarms}):
                gauge.add_metric((*_names(status), kind, member), 1)
        return gauge

    def _certificates(self) -> Metric:
        gauge = GaugeMetricFamily(
            "dledger_certificate_expiry_timestamp_seconds",
            "When the node's certificate ends, in seconds since 1970; no row without TLS.",
            labels=_LABELS,
        )
        for status, _ in self._nodes:
            if status.certificate_ends_at is not None:
                gauge.add_metric(_names(status), status.certificate_ends_at)
        return gauge

    def _syncs(self) -> Metric:
        histogram = HistogramMetricFamily(
            "dledger_sync_seconds", "Time that syncs to disk took.", labels=_LABELS
        )
        ends = [*map(str, SYNC_CLASSES_S), "+Inf"]
        for status, tally in self._nodes:
            counts = accumulate(tally.sync_classes)
            histogram.add_metric(_names(status), list(zip(ends, counts, strict=True)), tally.sync_s)
        return histogram

    def _peers(self) -> Iterator[Metric]:
        connected = GaugeMetricFamily(
            "dledger_peer_connected", "1 for a peer with a connection.", labels=_PEER_LABELS
        )
        match = GaugeMetricFamily(
            "dledger_peer_match_index",
            "Last entry a leader knows to be there.",
            labels=_PEER_LABELS,
        )
        for status, _ in self._nodes:
            for name, peer in status.peers.items():
                connected.add_metric((*_names(status), name), peer.connected)
                if peer.match_index is not None:
                    match.add_metric((*_names(status), name), peer.match_index)
        yield connected
        yield match


def _names(status: Status) -> tuple[str, str]:
    return status.group, status.node_id
