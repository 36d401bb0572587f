"""The texts of a page's pictures, and which of them stand over others or outside of theirs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

# Narrower than any usual font's mean letter, so that what overlaps here overlaps in a browser.
LETTER = 0.55
ABOVE, BELOW = 0.72, 0.2

# Counts, in a browser, the pairs of texts that are seen one over the other. A text's box there has
# room above and below its letters.
PAIRS_IN_A_BROWSER = """[...document.querySelectorAll("svg")].map(svg => {
  const boxes = [...svg.querySelectorAll("text")].map(one => one.getBoundingClientRect())
    .filter(one => one.width).map(one => [one.left, one.top + 0.16 * one.height,
      one.right, one.bottom - 0.16 * one.height]);
  return boxes.filter((one, at) => boxes.slice(0, at).some(other => one[0] < other[2]
    && other[0] < one[2] && one[1] < other[3] && other[1] < one[3])).length;
}).reduce((sum, one) => sum + one, 0)"""


@dataclass
class Text:
    """One text of a picture, in the picture's pixels."""

    words: str
    x: float
    y: float
    anchor: str
    size: float

    @property
    def box(self) -> tuple[float, float, float, float]:
        width = LETTER * self.size * len(self.words)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, self.y - ABOVE * self.size, left + width, self.y + BELOW * self.size


@dataclass
class Picture:
    """One drawing: the class of what is around it, its width and its texts."""

    around: str
    width: float
    texts: list[Text] = field(default_factory=list)

    def faults(self) -> list[str]:
        """What nobody can read."""
        found: list[str] = []
        above: list[tuple[float, float, float, str]] = []
        for text in sorted(self.texts, key=lambda one: one.box[1]):
            left, top, right, bottom = text.box
            if left < -1 or right > self.width + 1:
                found.append(f"{text.words!r} is cut off at {left:.0f} to {right:.0f}")
            above = [one for one in above if one[2] > top]
            found += [
                f"{text.words!r} over {words!r}"
                for other_left, other_right, _, words in above
                if left < other_right and other_left < right
            ]
            above.append((left, right, bottom, text.words))
        return found


class Pictures(HTMLParser):
    """All pictures of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.drawn: list[Picture] = []
        self._sizes = dict(re.findall(r"svg text\.([\w-]+) \{ font-size: ([\d.]+)px", page))
        self._around = ""
        self._text: Text | None = None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        there = {name: value or "" for name, value in attrs}
        if tag == "div":
            self._around = there.get("class", "")
        elif tag == "svg":
            self.drawn.append(Picture(self._around, float(there["viewbox"].split()[2])))
        elif tag == "text":
            sizes = [
                self._sizes[one] for one in there.get("class", "").split() if one in self._sizes
            ]
            anchor, size = there.get("text-anchor", "start"), float(sizes[0]) if sizes else 12.0
            self._text = Text("", float(there["x"]), float(there["y"]), anchor, size)
            self.drawn[-1].texts.append(self._text)
        elif tag == "title":
            self._text = None

    def handle_endtag(self, tag: str) -> None:
        if tag == "text":
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.words += data


def unreadable(page: str) -> list[str]:
    """What is wrong with the texts of a page's pictures: in words, at most ten."""
    drawn = Pictures(page).drawn
    found = [fault for picture in drawn for fault in picture.faults()]
    for picture in drawn:
        if "narrow" in picture.around and picture.width > 400:
            found.append(f"a narrow picture of {picture.width} pixels")
    if sum("narrow" in one.around for one in drawn) != sum("wide" in one.around for one in drawn):
        found.append("a picture is drawn for one width alone")
    return found[:10]


def without_policy(page: str) -> str:
    """The page without its policy, which lets no script measure it."""
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert free != page
    return free
