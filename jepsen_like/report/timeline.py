"""The timeline: a row a process, a bar an operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple
from xml.etree.ElementTree import Element

from dledger.pages.markup import child
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.report.frame import Frame

ROW = 15.0
AXIS = 24.0
# More rows are too many to look through; the page says how many there are.
ROWS_MAX = 40
# Bars nearer than this are drawn as one: a picture has no more room, and a page opens quickly.
NEAR = 1.2
CLASSES = {EventType.OK: "ok", EventType.FAIL: "fail", EventType.INFO: "info"}


class _Bar(NamedTuple):
    left: float
    right: float
    outcome: EventType
    operations: int


def draw_timeline(parent: Element, frame: Frame, operations: Sequence[Operation]) -> None:
    """Draw the timeline below `parent`, with the clients in the order of their numbers."""
    rows: dict[int, list[Operation]] = {}
    for operation in operations:
        rows.setdefault(operation.process, []).append(operation)
    shown = sorted(rows)[:ROWS_MAX]
    if len(rows) > len(shown):
        left_out = len(rows) - len(shown)
        child(parent, "p", f"Of {len(rows)} clients the first {ROWS_MAX}; {left_out} more.")
    bottom = 4 + ROW * len(shown)
    picture = frame.picture(parent, bottom + AXIS, "operations of each client over time")
    frame.bands(picture, 4, bottom)
    frame.axis(picture, 4, bottom)
    for at, process in enumerate(shown):
        top = 4 + at * ROW
        members = {one.member for one in rows[process] if one.member is not None}
        bound = f" at {members.pop()}" if len(members) == 1 else ""
        frame.name(picture, f"{process}{bound}", top + ROW - 4)
        for bar in _bars(frame, rows[process]):
            width = max(0.8, bar.right - bar.left)
            class_ = CLASSES[bar.outcome]
            one = child(
                picture.svg,
                "rect",
                x=bar.left,
                y=top + 3,
                width=width,
                height=ROW - 5,
                class_=class_,
            )
            if bar.outcome is not EventType.OK and frame.has_titles:
                child(one, "title", f"{bar.operations} with outcome {class_}")


def _bars(frame: Frame, operations: Sequence[Operation]) -> Iterator[_Bar]:
    """Return the bars of one client, failed ones last; near ones of one outcome are one bar."""
    bars: dict[EventType, list[_Bar]] = {outcome: [] for outcome in CLASSES}
    for index, operation in enumerate(operations):
        end_ns = operation.ended_ns
        if end_ns is None:  # never answered: until the client's next call, if there is one
            later = operations[index + 1 : index + 2]
            end_ns = later[0].invoked_ns if later else frame.end_ns
        left, right = frame.time.at(operation.invoked_ns), frame.time.at(end_ns)
        of_outcome = bars[operation.outcome]
        if of_outcome and left <= of_outcome[-1].right + NEAR:
            before = of_outcome.pop()
            right = max(right, before.right)
            of_outcome.append(before._replace(right=right, operations=before.operations + 1))
        else:
            of_outcome.append(_Bar(left, right, operation.outcome, 1))
    return chain.from_iterable(bars.values())
