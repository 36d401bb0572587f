"""The events of a space-time diagram, and their heights."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from jepsen_like.report.happened import Happened

# Events of one picture at most: a browser draws so many at once, and a person reads no more.
EVENTS_MAX = 600
# The distance between two events, in pixels: the least, and the most after a long silence.
ROW = 11.0
LONGEST_GAP = 34.0
_ABOUT_MESSAGES = ("sent", "arrived", "lost")


@dataclass(frozen=True)
class Rows:
    """The events that are shown, each with its height.

    `left_out` names the events that are not shown, in sentences.
    """

    events: Sequence[Happened]
    heights: Sequence[float]
    left_out: Sequence[str]

    @property
    def end(self) -> float:
        return self.heights[-1] if self.heights else 0.0


def rows_of(events: Sequence[Happened], idle: Collection[str], begin: float) -> Rows:
    """Choose the last events of a run, and place them from `begin` on downwards.

    Messages with a text of `idle` only show that all is well; they are the first to be left out.
    """
    left_out: list[str] = []
    if len(events) > EVENTS_MAX:
        quiet = {one.number for one in events if one.kind == "sent" and one.what in idle}
        shown = [
            one for one in events if one.kind not in _ABOUT_MESSAGES or one.number not in quiet
        ]
        if len(shown) < len(events):
            left_out.append(f"{len(quiet):,} heartbeats, greetings and their answers are left out")
        events = shown
    if len(events) > EVENTS_MAX:
        left_out.append(f"these are the last {EVENTS_MAX:,} of {len(events):,} events")
        events = events[-EVENTS_MAX:]
    heights: list[float] = []
    at, before_s = begin, events[0].at_s if events else 0.0
    for one in events:
        if one.at_s > before_s:
            at += _gap(one.at_s - before_s)
        heights.append(at)
        before_s = one.at_s
    return Rows(events, heights, left_out)


def _gap(apart_s: float) -> float:
    """Return the distance for some virtual seconds: it grows with their logarithm."""
    return min(LONGEST_GAP, ROW + 2.5 * math.log2(1.0 + apart_s * 1000.0))
