"""Draws a table of transitions as boxes and arrows, in SVG that needs nothing from the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from xml.etree.ElementTree import Element, tostring

from dledger.pages.markup import child

BOX_WIDTH, BOX_HEIGHT = 168, 38
LINE_HEIGHT = 14
# Colours come from the page, so that pictures fit its light and its dark side.
TEXT = "currentColor"
SOFT = "#7f8fa6"
STRONG = "#3f7fd9"
BACKGROUND = "var(--color-background-primary, #fff)"
MARKER = "state-arrow"


class Point(NamedTuple):
    """A place in a picture."""

    x: float
    y: float


class Arrow(NamedTuple):
    """All transitions from one state to another, as one curve."""

    source: str
    target: str
    events: tuple[str, ...]


def arrows_of(changes: Mapping[tuple[str, str], str]) -> list[Arrow]:
    """One arrow for each pair of states; what leads nowhere else is left out."""
    found: dict[tuple[str, str], list[str]] = {}
    for (source, event), target in changes.items():
        found.setdefault((source, target), []).append(event)
    return [
        Arrow(source, target, tuple(events))
        for (source, target), events in found.items()
        if source != target
    ]


class StateDiagram:
    """States at given places, and the arrows of a table between them.

    Args:
        places: the middle of each state's box.
        bends: how far the curve of an arrow leaves the straight line, in pixels to its left; 0
            for those that are not named.
    """

    def __init__(
        self, places: Mapping[str, Point], bends: Mapping[tuple[str, str], float] | None = None
    ) -> None:
        self._places = places
        self._bends = bends or {}

    def draw(self, changes: Mapping[tuple[str, str], str], title: str) -> str:
        """The picture of a table {(state, event): state}. Raises KeyError for a state without a
        place.
        """
        width = max(place.x for place in self._places.values()) + BOX_WIDTH / 2 + 20
        height = max(place.y for place in self._places.values()) + BOX_HEIGHT / 2 + 20
        arrows = arrows_of(changes)
        svg = new_picture(title, width, height, MARKER)
        for arrow in arrows:
            self._curve(svg, arrow)
        for name in self._places:
            self._box(svg, name)
        for arrow in arrows:
            self._words(svg, arrow)
        return as_svg(svg)

    def _box(self, svg: Element, name: str) -> None:
        x, y = self._places[name]
        draw_box(svg, x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2, BOX_WIDTH, BOX_HEIGHT)
        look = {"text_anchor": "middle", "font_size": 13.5, "font_weight": "bold", "fill": TEXT}
        child(svg, "text", name, x=x, y=y + 5, **look)

    def _middle(self, arrow: Arrow) -> Point:
        """The point that bends the curve."""
        start, end = self._places[arrow.source], self._places[arrow.target]
        length = ((end.x - start.x) ** 2 + (end.y - start.y) ** 2) ** 0.5
        bend = self._bends.get((arrow.source, arrow.target), 0.0)
        left = Point((end.y - start.y) / length, -(end.x - start.x) / length)
        return Point((start.x + end.x) / 2 + bend * left.x, (start.y + end.y) / 2 + bend * left.y)

    def _curve(self, svg: Element, arrow: Arrow) -> None:
        middle = self._middle(arrow)
        start = _edge(self._places[arrow.source], middle)
        end = _edge(self._places[arrow.target], middle)
        path = (
            f"M{start.x:.1f},{start.y:.1f} Q{middle.x:.1f},{middle.y:.1f} {end.x:.1f},{end.y:.1f}"
        )
        look = {"fill": "none", "stroke": SOFT, "stroke_width": 1.4}
        child(svg, "path", None, d=path, **look, marker_end=f"url(#{MARKER})")

    def _words(self, svg: Element, arrow: Arrow) -> None:
        start, end = self._places[arrow.source], self._places[arrow.target]
        middle = self._middle(arrow)
        # The middle of the curve itself lies half-way between the line and the bending point.
        x = (start.x + end.x) / 4 + middle.x / 2
        y = (start.y + end.y) / 4 + middle.y / 2 - LINE_HEIGHT * (len(arrow.events) - 1) / 2
        for number, event in enumerate(arrow.events):
            look = {"text_anchor": "middle", "fill": TEXT, **outlined(4.0)}
            child(svg, "text", event, x=x, y=y + 4 + number * LINE_HEIGHT, **look)


def _edge(centre: Point, towards: Point) -> Point:
    """Where the line from the middle of a box to a point leaves the box."""
    dx, dy = towards.x - centre.x, towards.y - centre.y
    scale = min(
        (BOX_WIDTH / 2 + 3) / abs(dx) if dx else float("inf"),
        (BOX_HEIGHT / 2 + 3) / abs(dy) if dy else float("inf"),
    )
    return Point(centre.x + dx * scale, centre.y + dy * scale)


def new_picture(title: str, width: float, height: float, marker: str) -> Element:
    """An empty picture, with the head that arrows of that marker end in."""
    size = {"viewBox": f"0 0 {width:g} {height:g}", "style": f"max-width:{width:g}px;width:100%"}
    look = {"font_size": 11.5, "font_family": "sans-serif", "role": "img", "class_": "drawn"}
    svg = child(Element("div"), "svg", None, **size, **look)
    child(svg, "title", title)
    head = {"markerWidth": 7, "markerHeight": 7, "refX": 7, "refY": 4, "viewBox": "0 0 8 8"}
    made = child(child(svg, "defs"), "marker", None, id=marker, orient="auto-start-reverse", **head)
    child(made, "path", d="M0,0 L8,4 L0,8 z", fill=SOFT)
    return svg


def draw_box(svg: Element, left: float, top: float, width: float, height: float) -> None:
    """Draw the box of a name."""
    look = {"rx": 8, "fill": BACKGROUND, "stroke": STRONG, "stroke_width": 1.6}
    child(svg, "rect", None, x=left, y=top, width=width, height=height, **look)


def outlined(width: float) -> dict[str, object]:
    """How words look that stand over lines."""
    return {"stroke": BACKGROUND, "stroke_width": width, "paint_order": "stroke"}


def as_svg(svg: Element) -> str:
    """A picture as text."""
    return tostring(svg, encoding="unicode", method="html")
