"""A picture over time: its room, its time axis, its lines.

Each picture is drawn twice, for a wide and for a narrow window, and the page's style shows one of
them: one that is scaled down has letters that nobody can read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element

from dledger_spark.report.markup import child, number
from dledger_spark.report.quantity import cut
from dledger_spark.report.scale import Scale
from dledger_spark.report.span import Span, Steps

RIGHT: Final = 10.0
AXIS: Final = 22.0  # below a picture, for the moments


@dataclass(frozen=True)
class Sheet:
    """What a picture is drawn on. Lengths are in pixels, if the window is as wide.

    Attributes:
        name: the class that shows or hides it.
        width: how wide it is.
        left: room for the names of rows and ticks.
        letters: how many letters of a name have room there.
        ticks: moments named below, at most.
    """

    name: str
    width: float
    left: float
    letters: int
    ticks: int


WIDE: Final = Sheet("wide", 1120.0, 170.0, 23, 11)
NARROW: Final = Sheet("narrow", 376.0, 92.0, 11, 4)


@dataclass(frozen=True)
class Plot:
    """One drawing of a picture."""

    svg: Element
    sheet: Sheet
    span: Span

    def x(self, ms: float) -> float:
        """Where a moment lies; earlier and later ones lie at the ends."""
        share = (ms - self.span.begin_ms) / (self.span.end_ms - self.span.begin_ms)
        room = self.sheet.width - RIGHT - self.sheet.left
        return self.sheet.left + min(1.0, max(0.0, share)) * room

    def axis(self, top: float, bottom: float) -> None:
        """The time axis below, and its lines through the picture."""
        for tick in self.span.ticks(self.sheet.ticks):
            x = self.x(tick.ms)
            child(self.svg, "line", x1=x, y1=top, x2=x, y2=bottom, class_="grid")
            middle = min(x, self.sheet.width - 26)  # or its end would be cut off
            child(self.svg, "text", tick.text, x=middle, y=bottom + 15, text_anchor="middle")

    def lines(self, scale: Scale, written: Callable[[float], str]) -> None:
        """The values of a scale, and their lines through the picture."""
        for tick in scale.ticks():
            y = scale.at(tick)
            end = self.sheet.width - RIGHT
            child(self.svg, "line", x1=self.sheet.left, y1=y, x2=end, y2=y, class_="grid")
            self.name(written(tick), y + 4, "tick")

    def name(self, text: str, y: float, class_: str = "name") -> None:
        """A name left of the picture; the whole one shows over it."""
        short = cut(text, self.sheet.letters)
        where = {"x": self.sheet.left - 7, "y": y, "text_anchor": "end"}
        one = child(self.svg, "text", short, class_=class_, **where)
        if short != text:
            child(one, "title", text[:2000])

    def rect(
        self, begin_ms: float, end_ms: float, top: float, height: float, class_: str
    ) -> Element:
        """A bar from one moment to another, at least a pixel wide."""
        x = self.x(begin_ms)
        width = max(1.0, self.x(end_ms) - x)
        return child(self.svg, "rect", x=x, y=top, width=width, height=height, class_=class_)

    def line(self, steps: Steps, values: Sequence[float | None], scale: Scale, class_: str) -> None:
        """A line of steps, which ends where nothing is known and begins again behind it."""
        path: list[str] = []
        is_down = False
        for step, value in enumerate(values):
            if value is None:
                is_down = False
                continue
            x, y = number(self.x(steps.begin(step))), number(scale.at(value))
            path.append(f"{'L' if is_down else 'M'}{x} {y}H{number(self.x(steps.begin(step + 1)))}")
            is_down = True
        if path:
            child(self.svg, "path", d="".join(path), class_=f"line {class_}")

    def area(
        self,
        steps: Steps,
        lower: Sequence[float],
        upper: Sequence[float],
        scale: Scale,
        class_: str,
    ) -> None:
        """The room between two lines of steps."""
        path: list[str] = []
        for step, (low, high) in enumerate(zip(lower, upper, strict=True)):
            if high > low:
                left, right = self.x(steps.begin(step)), self.x(steps.begin(step + 1))
                foot = scale.at(low)
                # A hair wider than the step, so that no light shows between two.
                width = number(right - left + 0.2)
                path.append(
                    f"M{number(left)} {number(foot)}h{width}V{number(scale.at(high))}h-{width}z"
                )
        if path:
            child(self.svg, "path", d="".join(path), class_=class_)


def picture(
    parent: Element, label: str, height: float, span: Span, draw: Callable[[Plot], None]
) -> None:
    """Draw a picture.

    Args:
        parent: below which.
        label: what it shows, for those who do not see it.
        height: without the time axis below it.
        span: the time that it shows.
        draw: draws on either sheet.
    """
    for sheet in (WIDE, NARROW):
        box = child(parent, "div", class_=f"picture {sheet.name}")
        room = {"viewBox": f"0 0 {sheet.width:.0f} {height + AXIS:.0f}", "aria-label": label}
        svg = child(box, "svg", role="img", **room)
        draw(Plot(svg, sheet, span))
