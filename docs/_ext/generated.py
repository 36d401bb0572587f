"""The Sphinx extension: `{generated} NAME` is made from the code, `{picture} NAME` is drawn.

Pictures are SVG inside the page, so they show without a network and on paper.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

from docs._ext import reference
from docs._ext.contents import DOCS, PICTURES, TABLES


class Generated(Directive):
    """A piece of Markdown that a function gives."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The nodes of it."""
        self.state.document.settings.env.note_reread()  # the code may have changed, not the page
        text = TABLES[self.arguments[0]]()
        holder = nodes.section() if "\n## " in f"\n{text}" else nodes.container()
        holder.document = self.state.document
        lines = StringList(text.splitlines(), source=f"generated: {self.arguments[0]}")
        self.state.nested_parse(lines, self.content_offset, holder, match_titles=True)
        return holder.children


class Picture(Directive):
    """An SVG that a function gives, with the content of the directive below it."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Callable[[str], Any]]] = {}

    def run(self) -> list[nodes.Node]:
        """A figure."""
        self.state.document.settings.env.note_reread()
        svg = PICTURES[self.arguments[0]]()
        figure = nodes.container(classes=["picture"])
        figure += nodes.raw("", f'<div class="picture">{svg}</div>', format="html")
        if self.content:
            self.state.nested_parse(self.content, self.content_offset, figure)
        return [figure]


_properties: dict[str, list[str]] = {}


def _docstring(
    _app: Sphinx, what: str, name: str, _member: object, _options: Any, lines: list[str]
) -> None:
    reference.read_as_rest(lines)
    if what in ("property", "attribute"):
        _properties[name] = list(lines)


def _docstring_of_a_property(
    _app: Sphinx, what: str, name: str, _member: object, _options: Any, lines: list[str]
) -> None:
    """Napoleon takes what stands before a colon for a type; with us it is the sentence."""
    if name in _properties and what in ("property", "attribute"):
        lines[:] = _properties.pop(name)


_RAISES = re.compile(r"^(\s*:raises )(\w+)(?=:)")


def _whole_names_of_errors(
    _app: Sphinx, _what: str, name: str, _member: object, _options: Any, lines: list[str]
) -> None:
    """Name each error with its package. The forms have the words of the trio classes, and both
    packages have a `Rejected`.
    """
    package = name.partition(".")[0]
    exported = vars(importlib.import_module(package))

    def whole(found: re.Match[str]) -> str:
        return f"{found[1]}{package}.{found[2]}" if found[2] in exported else found[0]

    lines[:] = [_RAISES.sub(whole, line) for line in lines]


def _signature(*arguments: Any) -> tuple[str, str] | None:
    """Signatures as people write the call.

    Classes that users never construct (protocols, enums, and those whose docstring names their
    maker) have no arguments. A context manager is shown with `with`.
    """
    member, given, returned = arguments[3], arguments[5] or "", arguments[6] or ""
    if not given:
        return None  # a property, or an error without fields
    if isinstance(member, type):
        by_hand = not issubclass(member, Enum) and not getattr(member, "_is_protocol", False)
        if not by_hand or "Made by `" in (member.__doc__ or ""):
            return "", ""
    elif hasattr(member, "__wrapped__"):
        returned = returned.replace("AsyncIterator[", "AbstractAsyncContextManager[")
        returned = returned.replace("collections.abc.Iterator[", "AbstractContextManager[")
    return given.replace("<factory>", "..."), returned


def _skip(_app: Sphinx, _what: str, _name: str, member: object, skip: bool, _options: Any) -> Any:
    """Fields of named tuples stand in the signature; Python's words for them say nothing."""
    doc = getattr(member, "__doc__", None) or ""
    return True if doc.startswith("Alias for field number") else None


def _name_every_page(_app: Sphinx, name: str, content: list[str]) -> None:
    """Put pages that index.md does not name under "More", so that none is lost."""
    if name != "index":
        return
    pages = sorted(path.stem for path in DOCS.glob("*.md"))
    missing = [page for page in pages if f"\n{page}\n" not in content[0] and page != "index"]
    if missing:
        lines = ["", "```{toctree}", ":caption: More", ":maxdepth: 1", "", *missing, "```", ""]
        content[0] += "\n".join(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("generated", Generated)
    app.add_directive("picture", Picture)
    app.connect("source-read", _name_every_page)
    app.connect("autodoc-process-docstring", _docstring, priority=100)
    app.connect("autodoc-process-docstring", _docstring_of_a_property, priority=900)
    app.connect("autodoc-process-docstring", _whole_names_of_errors, priority=900)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
