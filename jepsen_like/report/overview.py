"""The first picture: faults as lanes, and below them latency and throughput over the same time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from xml.etree.ElementTree import Element

from dledger.pages.markup import child
from dledger.pages.scale import LogScale, Scale
from dledger.pages.sheet import draw_steps
from jepsen_like.checkers.quantiles import seconds
from jepsen_like.history.operation import Operation
from jepsen_like.report.buckets import Bucket, buckets
from jepsen_like.report.frame import BANDS_MAX, NARROW, WIDE, Frame, Picture

LANE = 16.0
LATENCY = 190.0
THROUGHPUT = 150.0
SPACE = 14.0
AXIS = 24.0
# The number of spans of a run.
SPANS = {WIDE: 240, NARROW: 80}
# The lowest latency that is drawn: below it, clients' own speed is measured.
LATENCY_FLOOR_NS = 10_000.0


LEGEND = (
    *(("p50", "median latency"), ("p99", "99th percentile"), ("ok", "happened")),
    *(("fail", "certainly did not happen"), ("info", "not known")),
)


def draw_overview(
    parent: Element,
    frame: Frame,
    operations: Sequence[Operation],
    deliveries: Collection[str] = (),
) -> None:
    """Draw the picture below `parent`. Deliveries are functions without a latency."""
    lanes = frame.names()
    height = 6 + len(lanes) * LANE + SPACE + LATENCY + SPACE + THROUGHPUT + AXIS
    picture = frame.picture(parent, height, "faults, latency and throughput over time")
    top = 6.0
    for name in lanes:
        frame.name(picture, name, top + LANE - 5)
        for fault in [fault for fault in frame.faults if fault.name == name][:BANDS_MAX]:
            frame.band(picture, fault, top + 2, LANE - 4, "lane")
        top += LANE
    top += SPACE
    spans, span_ns = buckets(
        operations, frame.begin_ns, frame.end_ns, SPANS[frame.sheet], deliveries
    )
    bottom = height - AXIS
    frame.bands(picture, top, bottom)
    frame.axis(picture, top, bottom)
    _latency(picture, frame, spans, top)
    _throughput(picture, frame, spans, span_ns, top + LATENCY + SPACE)


def _latency(picture: Picture, frame: Frame, spans: Sequence[Bucket], top: float) -> None:
    slowest = max([span.p99_ns for span in spans], default=0)
    high = max(10 * LATENCY_FLOOR_NS, slowest * 1.2)
    low = min([span.p50_ns for span in spans if span.timed], default=LATENCY_FLOOR_NS)
    scale = LogScale(max(LATENCY_FLOOR_NS, low / 1.5), high, top + LATENCY, top + 20)
    frame.name(picture, "latency", top + 10, "heading")
    for tick in scale.ticks():
        _line(picture, frame, scale.at(tick), seconds(tick))
    x = [*(frame.time.at(span.begin_ns) for span in spans), frame.sheet.right]
    for class_ in ("p99", "p50"):
        times = [span.p99_ns if class_ == "p99" else span.p50_ns for span in spans]
        y = [scale.at(ns) if span.timed else None for span, ns in zip(spans, times, strict=True)]
        draw_steps(picture.svg, zip(x, x[1:], y, strict=False), class_)


def _throughput(
    picture: Picture, frame: Frame, spans: Sequence[Bucket], span_ns: int, top: float
) -> None:
    a_second = 1e9 / span_ns
    most = max([span.ok + span.failed + span.unknown for span in spans], default=0) * a_second
    scale = Scale(0.0, max(1.0, most), top + THROUGHPUT, top + 14)
    frame.name(picture, "operations", top + 10, "heading")
    for tick in scale.ticks(4):
        _line(picture, frame, scale.at(tick), f"{tick:,.6g}/s")
    width = max(0.6, frame.time.at(spans[0].begin_ns + span_ns) - frame.sheet.left - 0.4)
    for span in spans:
        x, floor = frame.time.at(span.begin_ns), 0.0
        for number, class_ in ((span.ok, "ok"), (span.failed, "fail"), (span.unknown, "info")):
            if number:
                y, below = scale.at(floor + number * a_second), scale.at(floor)
                height = max(0.5, below - y)
                child(picture.svg, "rect", x=x, y=y, width=width, height=height, class_=class_)
                floor += number * a_second


def _line(picture: Picture, frame: Frame, y: float, text: str) -> None:
    frame.sheet.line(picture.svg, y)
    frame.name(picture, text, y + 4, "tick")
