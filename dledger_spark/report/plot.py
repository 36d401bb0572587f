"""A picture over time: its time axis, its names, its lines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import child, number
from dledger.pages.scale import LogScale, Scale
from dledger.pages.sheet import Sheet, draw_steps
from dledger_spark.report.quantity import cut
from dledger_spark.report.span import Span, Steps

AXIS: Final = 22.0  # below a picture, for the moments
# The sheets, and the letters of a name that fit at their left.
_SHEETS: Final = {Sheet("wide", 1120.0, 170.0, 11): 23, Sheet("narrow", 376.0, 92.0, 4): 11}


@dataclass(frozen=True)
class Plot:
    svg: Element
    sheet: Sheet
    span: Span

    @property
    def letters(self) -> int:
        """The number of letters of a name that fit."""
        return _SHEETS[self.sheet]

    def x(self, ms: float) -> float:
        """Return the place of a moment; earlier and later ones are at the ends."""
        begin, end = self.sheet.left, self.sheet.right
        return Scale(self.span.begin_ms, self.span.end_ms, begin, end).at(ms)

    def axis(self, top: float, bottom: float) -> None:
        """Draw the time axis below, and its lines through the picture."""
        for tick in self.span.ticks(self.sheet.ticks):
            x = self.x(tick.ms)
            child(self.svg, "line", x1=x, y1=top, x2=x, y2=bottom, class_="grid")
            if x < self.sheet.left + 20:
                continue  # its text would stand over the names of rows and ticks
            middle = min(x, self.sheet.width - 26)  # or its end would be cut off
            child(self.svg, "text", tick.text, x=middle, y=bottom + 15, text_anchor="middle")

    def lines(self, scale: Scale | LogScale, written: Callable[[float], str]) -> None:
        """Draw the values of a scale, and their lines through the picture."""
        for tick in scale.ticks():
            y = scale.at(tick)
            self.sheet.line(self.svg, y)
            self.name(written(tick), y + 4, "tick")

    def name(self, text: str, y: float, class_: str = "name") -> None:
        """Draw a name left of the picture; the whole one shows over it."""
        short = cut(text, self.letters)
        where = {"x": self.sheet.left - 7, "y": y, "text_anchor": "end"}
        one = child(self.svg, "text", short, class_=class_, **where)
        if short != text:
            child(one, "title", text[:2000])

    def rect(
        self, begin_ms: float, end_ms: float, top: float, height: float, class_: str
    ) -> Element:
        """Draw a bar from one moment to another, at least a pixel wide."""
        x = self.x(begin_ms)
        width = max(1.0, self.x(end_ms) - x)
        return child(self.svg, "rect", x=x, y=top, width=width, height=height, class_=class_)

    def line(
        self, steps: Steps, values: Sequence[float | None], scale: LogScale, class_: str
    ) -> None:
        """Draw a line of steps, with gaps where values are unknown."""
        x = [self.x(steps.begin(step)) for step in range(len(values) + 1)]
        y = [None if value is None else scale.at(value) for value in values]
        draw_steps(self.svg, zip(x, x[1:], y, strict=False), class_)

    def area(
        self,
        steps: Steps,
        lower: Sequence[float],
        upper: Sequence[float],
        scale: Scale,
        class_: str,
    ) -> None:
        """Fill the area between two lines of steps."""
        path: list[str] = []
        for step, (low, high) in enumerate(zip(lower, upper, strict=True)):
            if high > low:
                left, right = self.x(steps.begin(step)), self.x(steps.begin(step + 1))
                foot = scale.at(low)
                # Slightly wider than the step, so that there is no gap between two.
                width = number(right - left + 0.2)
                path.append(
                    f"M{number(left)} {number(foot)}h{width}V{number(scale.at(high))}h-{width}z"
                )
        if path:
            child(self.svg, "path", d="".join(path), class_=class_)


def picture(
    parent: Element, label: str, height: float, span: Span, draw: Callable[[Plot], None]
) -> None:
    """Draw a picture on each sheet, with a label for those who do not see it.

    `height` is without the time axis below.
    """
    for sheet in _SHEETS:
        draw(Plot(sheet.picture(sheet.box(parent), height + AXIS, label), sheet, span))
