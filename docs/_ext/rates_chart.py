"""Draws docs/pictures/rates.svg from the first table of docs/performance.md.

`python -m docs._ext.rates_chart` writes the file anew; a test fails when it is not up to date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element, tostring

from dledger.pages.markup import child, number
from dledger.pages.scale import LogScale

DOCS: Final = Path(__file__).parent.parent
PAGE: Final = DOCS / "performance.md"
PICTURE: Final = DOCS / "pictures" / "rates.svg"

_HEAD: Final = "| entries a second |"
_WIDTH, _HEIGHT = 900.0, 440.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 70.0, 670.0, 40.0, 400.0
_NAME_GAP: Final = 16.0  # between the names of two lines that end close to each other
_MARKS: Final = (300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
_OURS: Final = "dledger"
_NOT_SYNCED: Final = "not synced"
_STYLE: Final = """
:root { --paper: #ffffff; --ink: #1c2430; --soft: #5b6675; --rule: #d9dee5;
  --ours: #1f62b5; --other: #c25a1c; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14181e; --ink: #e4e8ee; --soft: #98a3b3; --rule: #303843;
  --ours: #69a5e8; --other: #e39a62; } }
svg { background: var(--paper); }
text { fill: var(--ink); font: 12px system-ui, sans-serif; } text.tick { fill: var(--soft); }
.grid { stroke: var(--rule); stroke-width: 1; }
path { fill: none; stroke-width: 2; stroke-linejoin: round; }
path.ours { stroke: var(--ours); } text.ours { fill: var(--ours); font-weight: 600; }
path.other { stroke: var(--other); } text.other { fill: var(--other); }
path.unsynced { stroke: var(--soft); stroke-dasharray: 5 4; } text.unsynced { fill: var(--soft); }
path.lead { stroke: var(--soft); stroke-width: 0.6; }
"""


class Rates(NamedTuple):
    """A table of rates.

    Attributes:
        in_flight: the numbers of entries in flight, one for each column.
        systems: by name of the system, its entries a second; None for an empty cell.
    """

    in_flight: Sequence[int]
    systems: Mapping[str, Sequence[int | None]]


def rates_of(page: str) -> Rates:
    """Read the first table of rates of a page."""
    lines = page[page.index(_HEAD) :].split("\n\n", 1)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    in_flight = [int(cell.split()[0].replace(",", "")) for cell in rows[0][1:]]
    return Rates(
        in_flight,
        {
            name: [int(cell.replace(",", "")) if cell else None for cell in cells]
            for name, *cells in rows[2:]
        },
    )


def draw(rates: Rates) -> str:
    """Draw the rate of each system by the number of entries in flight, both logarithmic."""
    across = LogScale(rates.in_flight[0], rates.in_flight[-1], _LEFT, _RIGHT, rates.in_flight)
    up = LogScale(_MARKS[0], _MARKS[-1], _BOTTOM, _TOP, _MARKS)
    box = {"viewBox": f"0 0 {_WIDTH:g} {_HEIGHT:g}", "xmlns": "http://www.w3.org/2000/svg"}
    svg = child(Element("div"), "svg", role="img", **box)
    child(svg, "title", "Entries a second by the number of entries in flight")
    child(svg, "style", _STYLE)
    _draw_axes(svg, across, up)
    ends = []
    for name, values in rates.systems.items():
        class_ = _class(name)
        points = [
            (across.at(x), up.at(y))
            for x, y in zip(rates.in_flight, values, strict=True)
            if y is not None
        ]
        path = "L".join(f"{number(x)} {number(y)}" for x, y in points)
        child(svg, "path", d=f"M{path}", class_=class_)
        ends.append((points[-1][1], name.replace("`", ""), class_))
    _draw_names(svg, ends)
    return tostring(svg, encoding="unicode") + "\n"


def _class(name: str) -> str:
    if name.startswith(_OURS):
        return "ours"
    return "unsynced" if name.endswith(_NOT_SYNCED) else "other"


def _draw_axes(svg: Element, across: LogScale, up: LogScale) -> None:
    child(svg, "text", "entries a second", x=_LEFT - 60, y=_TOP - 18)
    for value in up.ticks():
        y = up.at(value)
        child(svg, "line", x1=_LEFT, y1=y, x2=_RIGHT, y2=y, class_="grid")
        child(svg, "text", f"{value:,.0f}", x=_LEFT - 8, y=y + 4, class_="tick", text_anchor="end")
    for value in across.ticks():
        x = across.at(value)
        child(svg, "line", x1=x, y1=_TOP, x2=x, y2=_BOTTOM, class_="grid")
        look = {"class_": "tick", "text_anchor": "middle"}
        child(svg, "text", f"{value:,.0f}", x=x, y=_BOTTOM + 18, **look)
    child(svg, "text", "entries in flight", x=_RIGHT, y=_BOTTOM + 34, text_anchor="end")


def _draw_names(svg: Element, ends: Sequence[tuple[float, str, str]]) -> None:
    """Name each line at its right end, and move names apart that would overlap."""
    lowest = _BOTTOM
    for y, name, class_ in sorted(ends, reverse=True):
        lowest = min(y, lowest - _NAME_GAP)
        line = f"M{number(_RIGHT + 3)} {number(y)}L{number(_RIGHT + 18)} {number(lowest)}"
        child(svg, "path", d=line, class_="lead")
        child(svg, "text", name, x=_RIGHT + 22, y=lowest + 4, class_=class_)


if __name__ == "__main__":
    PICTURE.write_text(draw(rates_of(PAGE.read_text(encoding="utf-8"))), encoding="utf-8")
