"""The sheet of a picture: its width, the room at its left, and its place in a page.

A picture is drawn for a wide and for a narrow window, and the page's style shows one of them:
letters of a picture that is scaled down cannot be read.
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
        width: of the whole picture.
        left: room for the names of rows and ticks.
        ticks: the most times below a picture.
    """

    name: str
    width: float
    left: float
    ticks: int

    @property
    def right(self) -> float:
        return self.width - RIGHT

    def box(self, parent: Element) -> Element:
        return child(parent, "div", class_=f"picture {self.name}")

    def picture(self, parent: Element, height: float, label: str) -> Element:
        """Add a picture, with a label for those who do not see it."""
        attributes = {"viewBox": f"0 0 {self.width:.0f} {height:.0f}", "aria-label": label}
        return child(parent, "svg", role="img", **attributes)

    def line(self, svg: Element, y: float) -> None:
        child(svg, "line", x1=self.left, y1=y, x2=self.right, y2=y, class_="grid")


def draw_steps(
    svg: Element, steps: Iterable[tuple[float, float, float | None]], class_: str
) -> None:
    """Draw a line of steps, each given by its begin, its end and its height.

    The line is interrupted where a height is None.
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
    """Add a line that explains colours, by pairs of a class and a text; return it."""
    line = child(parent, "p", class_="legend")
    for class_, text in words:
        word = child(line, "span", class_="word")
        child(word, "i", class_=f"key {class_}")
        child(word, "span", text)
        word.tail = " "
    return line
