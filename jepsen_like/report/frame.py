"""The frame that all pictures of a run share: its width, its time axis, its bands of faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from xml.etree.ElementTree import Element

from dledger.pages.markup import child
from dledger.pages.scale import Scale
from dledger.pages.sheet import Sheet
from jepsen_like.checkers.quantiles import seconds
from jepsen_like.report.lettering import Lettering, cut_to, text_width
from jepsen_like.report.told_run import Fault

WIDE = Sheet("wide", 1120.0, 130.0, 11)
NARROW = Sheet("narrow", 376.0, 104.0, 4)
# As many kinds of faults get colours of their own; more share them.
FAULT_COLOURS = 8
# Bands beyond this number are left out, with a note: a page has to open quickly.
BANDS_MAX = 600


class Picture(NamedTuple):
    """One drawing: its shapes, and its texts above them."""

    svg: Element
    texts: Lettering


@dataclass(frozen=True)
class Frame:
    """From when to when pictures show a run, and the faults in it.

    Times of a run are shown in seconds since `zero_ns`.
    """

    begin_ns: int
    end_ns: int
    zero_ns: int
    faults: Sequence[Fault]
    sheet: Sheet = WIDE

    @property
    def time(self) -> Scale:
        """The scale from times to positions."""
        return Scale(self.begin_ns, self.end_ns, self.sheet.left, self.sheet.right)

    @property
    def has_titles(self) -> bool:
        """Whether texts show over shapes: phones have no pointer for them, and pages get long."""
        return self.sheet is WIDE

    def on_each_sheet(self, parent: Element, draw: Callable[[Element, Frame], None]) -> None:
        """Draw below `parent` for wide and for narrow windows."""
        for sheet in (WIDE, NARROW):
            draw(sheet.box(parent), replace(self, sheet=sheet))

    def picture(self, parent: Element, height: float, label: str) -> Picture:
        """Add a picture, with a label for readers who do not see it."""
        svg = self.sheet.picture(parent, height, label)
        return Picture(child(svg, "g"), Lettering(svg))

    def names(self) -> list[str]:
        """Return the kinds of faults, in the order in which they begin."""
        return list(dict.fromkeys(fault.name for fault in self.faults))

    def colour(self, name: str) -> str:
        """Return the class that colours a kind of fault."""
        return f"fault{self.names().index(name) % FAULT_COLOURS}"

    def bands(self, picture: Picture, top: float, bottom: float) -> None:
        """Draw every fault behind a picture."""
        for fault in self.faults[:BANDS_MAX]:
            self.band(picture, fault, top, bottom - top, "band")

    def band(self, picture: Picture, fault: Fault, top: float, height: float, class_: str) -> None:
        """Draw one fault; its name and target show over it."""
        end_ns = self.end_ns if fault.end_ns is None else fault.end_ns
        if end_ns < self.begin_ns or fault.begin_ns > self.end_ns:
            return
        left = self.time.at(fault.begin_ns)
        width = max(1.0, self.time.at(end_ns) - left)
        classes = f"{class_} {self.colour(fault.name)}"
        one = child(picture.svg, "rect", x=left, y=top, width=width, height=height, class_=classes)
        if not self.has_titles:
            return
        lasted = "to the end" if fault.end_ns is None else seconds(end_ns - fault.begin_ns)
        begin = seconds(fault.begin_ns - self.zero_ns)
        child(one, "title", f"{fault.name} {fault.target}: from {begin}, {lasted}")

    def axis(self, picture: Picture, top: float, bottom: float) -> None:
        """Draw the time axis below a picture, and its lines through it."""
        relative = Scale(
            (self.begin_ns - self.zero_ns) / 1e9,
            (self.end_ns - self.zero_ns) / 1e9,
            self.sheet.left,
            self.sheet.right,
        )
        for tick in relative.ticks(self.sheet.ticks):
            x = relative.at(tick)
            child(picture.svg, "line", x1=x, y1=top, x2=x, y2=bottom, class_="grid")
            text = f"{tick:.6g} s"
            middle = min(x, self.sheet.width - text_width(text, "tick") / 2)
            picture.texts.write(text, [(middle, bottom + 14)], "tick", anchor="middle")

    def name(self, picture: Picture, text: str, y: float, kind: str = "name") -> None:
        """Write a name left of a row, cut to the room there; the whole name shows over it."""
        x = self.sheet.left - 8
        cut = cut_to(text, x, kind)
        picture.texts.write(cut, [(x, y)], kind, anchor="end", whole=text)
