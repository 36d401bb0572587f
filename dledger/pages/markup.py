"""Elements of HTML and SVG. The standard library's tree escapes all text that gets into them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

# Keys, topics and values may hold characters that no page can show, or that reverse the text around
# them.
_SHOWN_INSTEAD: Final = dict.fromkeys(
    (
        *range(9),
        *(11, 12),
        *range(14, 32),
        *range(127, 160),
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        *(0xFEFF, 0xFFFE, 0xFFFF),
    ),
    "\ufffd",
)


def shown(text: str) -> str:
    """Replace characters that may not be in a page."""
    return text.translate(_SHOWN_INSTEAD).encode("utf-8", "replace").decode()


def child(parent: Element, tag: str, text: str | None = None, **attributes: object) -> Element:
    """Add an element.

    Args:
        parent: below which.
        tag: its name.
        text: its text.
        attributes: `class_` becomes `class`, an underscore within a name a hyphen. Numbers are
            written with a tenth of a pixel.
    """
    there = {}
    for name, value in attributes.items():
        written = number(value) if isinstance(value, float) else str(value)
        there[name.rstrip("_").replace("_", "-")] = shown(written)
    one = SubElement(parent, tag, there)
    if text is not None:
        one.text = shown(text)
    return one


def note(parent: Element, text: str | None = None) -> Element:
    return child(parent, "p", text, class_="soft")


def bullets(parent: Element, texts: Iterable[str]) -> None:
    listed = child(parent, "ul")
    for text in texts:
        child(listed, "li", text)


def number(value: float) -> str:
    """Write a coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def new_page(title: str, style: str) -> tuple[Element, Element]:
    """Return the root and the body of a page that loads nothing else."""
    root = Element("html", {"lang": "en"})
    head = child(root, "head")
    child(head, "meta", charset="utf-8")
    child(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    # Even a text that became markup by a mistake could load and run nothing.
    policy = {"http-equiv": "Content-Security-Policy"}
    policy["content"] = "default-src 'none'; style-src 'unsafe-inline'"
    child(head, "meta", **policy)
    child(head, "title", title)
    child(head, "style").text = style
    return root, child(root, "body")


def as_html(root: Element) -> str:
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"
