"""Elements of HTML and SVG. The standard library's tree escapes all text that gets into them."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, tostring

# A value of a history may hold characters that no page can show.
_SHOWN_INSTEAD = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 65534, 65535), "�")


def safe(text: str) -> str:
    """A text without characters that are none in a page."""
    shown = text.translate(_SHOWN_INSTEAD)
    return shown.encode("utf-8", "replace").decode()


def child(parent: Element, tag: str, text: str | None = None, **attributes: object) -> Element:
    """Add an element. `class_` becomes `class`, and an underscore within a name a hyphen.

    Numbers are written with at most one digit behind the point: a tenth of a pixel.
    """
    there = {}
    for name, value in attributes.items():
        written = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
        there[name.rstrip("_").replace("_", "-")] = safe(written)
    one = SubElement(parent, tag, there)
    if text is not None:
        one.text = safe(text)
    return one


def new_page(title: str, style: str) -> tuple[Element, Element]:
    """A page that needs nothing else: its root and its body."""
    root = Element("html", {"lang": "en"})
    head = child(root, "head")
    child(head, "meta", charset="utf-8")
    child(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    child(head, "title", title)
    child(head, "style").text = style
    return root, child(root, "body")


def as_html(root: Element) -> str:
    """A whole page as text."""
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"
