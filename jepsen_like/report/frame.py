"""The frame that all pictures of a run share: its width, its time axis, its bands of faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from jepsen_like.checkers.quantiles import seconds
from jepsen_like.report.markup import child
from jepsen_like.report.scale import Scale
from jepsen_like.report.told_run import Fault

WIDTH = 1120.0
LEFT = 130.0
RIGHT = 12.0
TICKS_MAX = 11
# Names left of a picture are cut to what fits there; the whole name shows over it.
NAME_LETTERS_MAX = 18
# As many kinds of faults get colours of their own; more share them.
FAULT_COLOURS = 8
# Bands beyond this number are left out, and that is said: a page has to open quickly.
BANDS_MAX = 600


@dataclass(frozen=True)
class Frame:
    """From when to when pictures show a run, and the faults in it.

    Times of a run are shown in seconds since `zero_ns`.
    """

    begin_ns: int
    end_ns: int
    zero_ns: int
    faults: Sequence[Fault]

    @property
    def time(self) -> Scale:
        """Where a time lies."""
        return Scale(self.begin_ns, self.end_ns, LEFT, WIDTH - RIGHT)

    def picture(self, parent: Element, height: float, label: str) -> Element:
        """A new picture, with a label for those who do not see it."""
        attributes = {"viewBox": f"0 0 {WIDTH:.0f} {height:.0f}", "aria-label": label}
        return child(parent, "svg", role="img", **attributes)

    def names(self) -> list[str]:
        """The kinds of faults, in the order in which they come."""
        return list(dict.fromkeys(fault.name for fault in self.faults))

    def colour(self, name: str) -> str:
        """The class that colours a kind of fault."""
        return f"fault{self.names().index(name) % FAULT_COLOURS}"

    def bands(self, svg: Element, top: float, bottom: float) -> None:
        """Draw every fault behind a picture."""
        for fault in self.faults[:BANDS_MAX]:
            self.band(svg, fault, top, bottom - top, "band")

    def band(self, svg: Element, fault: Fault, top: float, height: float, class_: str) -> None:
        """Draw one fault; its name and target show over it."""
        end_ns = self.end_ns if fault.end_ns is None else fault.end_ns
        if end_ns < self.begin_ns or fault.begin_ns > self.end_ns:
            return
        left = self.time.at(fault.begin_ns)
        width = max(1.0, self.time.at(end_ns) - left)
        classes = f"{class_} {self.colour(fault.name)}"
        one = child(svg, "rect", x=left, y=top, width=width, height=height, class_=classes)
        lasted = "to the end" if fault.end_ns is None else seconds(end_ns - fault.begin_ns)
        begin = seconds(fault.begin_ns - self.zero_ns)
        child(one, "title", f"{fault.name} {fault.target}: from {begin}, {lasted}")

    def axis(self, svg: Element, top: float, bottom: float) -> None:
        """Draw the time axis below a picture, and its lines through it."""
        relative = Scale(
            (self.begin_ns - self.zero_ns) / 1e9,
            (self.end_ns - self.zero_ns) / 1e9,
            LEFT,
            WIDTH - RIGHT,
        )
        for tick in relative.ticks(TICKS_MAX):
            x = relative.at(tick)
            child(svg, "line", x1=x, y1=top, x2=x, y2=bottom, class_="grid")
            text = f"{tick:.6g} s"
            child(svg, "text", text, x=x, y=bottom + 14, class_="tick", text_anchor="middle")

    def name(self, svg: Element, text: str, y: float, class_: str = "name") -> None:
        """Write a name left of a row."""
        cut = text if len(text) <= NAME_LETTERS_MAX else text[: NAME_LETTERS_MAX - 1] + "…"
        one = child(svg, "text", cut, x=LEFT - 8, y=y, class_=class_, text_anchor="end")
        if cut != text:
            child(one, "title", text)
