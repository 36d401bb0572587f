"""Draws a table of transitions as boxes and arrows, in SVG that needs nothing from the network."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import NamedTuple

BOX_WIDTH, BOX_HEIGHT = 168, 38
LINE_HEIGHT = 14
# Colours come from the page, so that pictures fit its light and its dark side.
TEXT = "currentColor"
SOFT = "#7f8fa6"
STRONG = "#3f7fd9"
BACKGROUND = "var(--color-background-primary, #fff)"


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
        parts = [
            f'<svg class="drawn" viewBox="0 0 {width:g} {height:g}" role="img" '
            f'style="max-width:{width:g}px;width:100%" font-size="11.5" font-family="sans-serif">',
            f"<title>{escape(title)}</title>",
            arrow_head("state-arrow"),
            *(self._curve(arrow) for arrow in arrows),
            *(self._box(name) for name in self._places),
            *(self._words(arrow) for arrow in arrows),
            "</svg>",
        ]
        return "\n".join(parts)

    def _box(self, name: str) -> str:
        x, y = self._places[name]
        return (
            f'<rect x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}" width="{BOX_WIDTH}" '
            f'height="{BOX_HEIGHT}" rx="8" fill="{BACKGROUND}" stroke="{STRONG}" '
            f'stroke-width="1.6"/><text x="{x:g}" y="{y + 5:g}" text-anchor="middle" '
            f'font-size="13.5" font-weight="bold" fill="{TEXT}">{escape(name)}</text>'
        )

    def _middle(self, arrow: Arrow) -> Point:
        """The point that bends the curve."""
        start, end = self._places[arrow.source], self._places[arrow.target]
        length = ((end.x - start.x) ** 2 + (end.y - start.y) ** 2) ** 0.5
        bend = self._bends.get((arrow.source, arrow.target), 0.0)
        left = Point((end.y - start.y) / length, -(end.x - start.x) / length)
        return Point((start.x + end.x) / 2 + bend * left.x, (start.y + end.y) / 2 + bend * left.y)

    def _curve(self, arrow: Arrow) -> str:
        middle = self._middle(arrow)
        start = _edge(self._places[arrow.source], middle)
        end = _edge(self._places[arrow.target], middle)
        return (
            f'<path d="M{start.x:.1f},{start.y:.1f} Q{middle.x:.1f},{middle.y:.1f} '
            f'{end.x:.1f},{end.y:.1f}" fill="none" stroke="{SOFT}" stroke-width="1.4" '
            'marker-end="url(#state-arrow)"/>'
        )

    def _words(self, arrow: Arrow) -> str:
        start, end = self._places[arrow.source], self._places[arrow.target]
        middle = self._middle(arrow)
        # The middle of the curve itself lies half-way between the line and the bending point.
        x = (start.x + end.x) / 4 + middle.x / 2
        y = (start.y + end.y) / 4 + middle.y / 2 - LINE_HEIGHT * (len(arrow.events) - 1) / 2
        return "".join(
            _label(x, y + 4 + number * LINE_HEIGHT, event)
            for number, event in enumerate(arrow.events)
        )


def _edge(centre: Point, towards: Point) -> Point:
    """Where the line from the middle of a box to a point leaves the box."""
    dx, dy = towards.x - centre.x, towards.y - centre.y
    scale = min(
        (BOX_WIDTH / 2 + 3) / abs(dx) if dx else float("inf"),
        (BOX_HEIGHT / 2 + 3) / abs(dy) if dy else float("inf"),
    )
    return Point(centre.x + dx * scale, centre.y + dy * scale)


def _label(x: float, y: float, words: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="{TEXT}" '
        f'stroke="{BACKGROUND}" stroke-width="4" paint-order="stroke">{escape(words)}</text>'
    )


def arrow_head(name: str) -> str:
    """The head that arrows of that name end in."""
    return (
        f'<defs><marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="{SOFT}"/>'
        "</marker></defs>"
    )
