"""The texts of a picture: none overlaps another, whatever names and values a run has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple
from unicodedata import east_asian_width
from xml.etree.ElementTree import Element

from dledger.pages.markup import child


class Letters(NamedTuple):
    """The size of a kind of text in pixels, and whether it is bold."""

    size: float
    is_bold: bool = False


# The kinds of text, by the class of their style.
LETTERS = {
    "tick": Letters(11.0),
    "name": Letters(11.0),
    "heading": Letters(12.0, is_bold=True),
    "call": Letters(12.0),
    "member": Letters(13.0, is_bold=True),
    "said": Letters(10.0),
    "progress": Letters(9.5),
    "client": Letters(10.0),
    "role": Letters(10.0, is_bold=True),
    "note-text": Letters(10.0, is_bold=True),
}
# A letter's mean width as a share of its size, in the widest of the usual fonts (DejaVu Sans).
_WIDE, _BOLD = 0.62, 0.71
# How far letters reach above and below their line, as shares of their size.
_ABOVE, _BELOW = 0.78, 0.24
_STRIP = 32.0


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def letters_style() -> str:
    """Return the sizes as a style, so that a page shows what was measured."""
    return "\n".join(
        f"svg text.{kind} {{ font-size: {one.size:g}px; "
        f"font-weight: {600 if one.is_bold else 400}; }}"
        for kind, one in LETTERS.items()
    )


def text_width(words: str, kind: str) -> float:
    """Return the largest width of a text of this kind in the usual fonts, in pixels."""
    letters = LETTERS[kind]
    # Letters of East Asia are as wide as high.
    count = sum(
        1.0 if _is_wide(letter) else _BOLD if letters.is_bold else _WIDE for letter in words
    )
    return count * letters.size


def cut_to(words: str, room: float, kind: str) -> str:
    """Return a text as it fits into some pixels: its beginning, if it is too long."""
    if text_width(words, kind) <= room:
        return words
    kept = words
    while kept and text_width(f"{kept}…", kind) > room:
        kept = kept[:-1]
    return f"{kept}…"


def _is_wide(letter: str) -> bool:
    return east_asian_width(letter) in "WF"


class Lettering:
    """Writes the texts of one picture, above all that is drawn in it."""

    def __init__(self, svg: Element) -> None:
        self._group = child(svg, "g")
        self._taken: defaultdict[int, list[_Box]] = defaultdict(list)

    def write(
        self,
        words: str,
        places: Iterable[tuple[float, float]],
        kind: str,
        *,
        class_: str = "",
        anchor: str = "start",
        whole: str = "",
    ) -> bool:
        """Write a text at the first of some places that has no other text; return whether one had
        not.

        `anchor` says whether x is the start, the middle or the end of the text. `whole` shows over
        it.
        """
        width, size = text_width(words, kind), LETTERS[kind].size
        before = {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        for x, y in places:
            left = x - before
            box = _Box(left, y - _ABOVE * size, left + width, y + _BELOW * size)
            strips = range(int(box.top // _STRIP), int(box.bottom // _STRIP) + 1)
            if any(box.overlaps(other) for strip in strips for other in self._taken[strip]):
                continue
            for strip in strips:
                self._taken[strip].append(box)
            classes = f"{kind} {class_}".rstrip()
            text = child(self._group, "text", words, x=x, y=y, class_=classes, text_anchor=anchor)
            if whole not in ("", words):
                child(text, "title", whole)
            return True
        return False
