"""What a picture is drawn on: its width, the room at its left, and how it is put into a page.

A picture is drawn for a wide and for a narrow window, and the page's style shows one of them: one
that is scaled down has letters that nobody can read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element

from dledger.pages.markup import child, number

RIGHT: Final = 12.0


@dataclass(frozen=True)
class Sheet:
    """Lengths are in pixels, if the window is as wide.

    Attributes:
        name: the class that shows or hides it.
        width: how wide it is.
        left: room for the names of rows and ticks.
        ticks: times below a picture, at most.
    """

    name: str
    width: float
    left: float
    ticks: int

    @property
    def right(self) -> float:
        """Where pictures end."""
        return self.width - RIGHT

    def box(self, parent: Element) -> Element:
        """Where its pictures go, below `parent`."""
        return child(parent, "div", class_=f"picture {self.name}")

    def picture(self, parent: Element, height: float, label: str) -> Element:
        """A new picture, with a label for those who do not see it."""
        attributes = {"viewBox": f"0 0 {self.width:.0f} {height:.0f}", "aria-label": label}
        return child(parent, "svg", role="img", **attributes)

    def line(self, svg: Element, y: float) -> None:
        """A thin line through a picture, such as at a round value."""
        child(svg, "line", x1=self.left, y1=y, x2=self.right, y2=y, class_="grid")


def draw_steps(
    svg: Element, steps: Iterable[tuple[float, float, float | None]], class_: str
) -> None:
    """Draw a line of steps: of each its begin, its end and its height.

    The line ends where a height is not known, and begins again behind it.
    """
    path: list[str] = []
    is_down = False
    for begin, end, y in steps:
        if y is not None:
            path.append(f"{'L' if is_down else 'M'}{number(begin)} {number(y)}H{number(end)}")
        is_down = y is not None
    if path:
        child(svg, "path", d="".join(path), class_=f"line {class_}")


def legend(parent: Element, words: Iterable[tuple[str, str]]) -> Element:
    """Say what colours mean, by pairs of a class and a text. Returns the line."""
    line = child(parent, "p", class_="legend")
    for class_, text in words:
        word = child(line, "span", class_="word")
        child(word, "i", class_=f"key {class_}")
        child(word, "span", text)
        word.tail = " "
    return line
