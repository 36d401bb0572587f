"""Counts messages, by topic and group (315), and for a broker's figures (28)."""

from functools import partial

from broker.retention.disk_usage import capacity_bytes
from broker.serving.member import MEMBER
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import LOOK
from broker.traffic.figures import TrafficFigures
from broker.traffic.processor import TrafficProcessor
from broker.traffic.traffic import TRAFFIC
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    traffic, member = parts[TRAFFIC], parts[MEMBER]
    directory = parts.config.directory
    figures = TrafficFigures(
        parts,
        member.hour_of,
        partial(member.used_percent, directory),
        partial(capacity_bytes, directory),
    )
    processor = TrafficProcessor(parts)

    def look_over() -> None:
        figures.look()
        parts.work.begin("forgetting idle counters", traffic.let_go())

    return Service(
        handlers={RequestCode.VIEW_BROKER_STATS_DATA: Handler(processor.view, LOOK)},
        begin_term=figures.begin_term,
        applied=traffic.stored,
        tick=traffic.sample,
        look_over=look_over,
        figures=figures.figures,
    )
