"""The Sphinx extension: `{generated} NAME` is made from the code, `{picture} NAME` is drawn.

Pictures are SVG inside the page, so they show without a network and on paper.
"""

from __future__ import annotations

from collections.abc import Callable
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
        svg = PICTURES[self.arguments[0]]()
        figure = nodes.container(classes=["picture"])
        figure += nodes.raw("", f'<div class="picture">{svg}</div>', format="html")
        if self.content:
            self.state.nested_parse(self.content, self.content_offset, figure)
        return [figure]


def _docstring(*arguments: Any) -> None:
    reference.read_as_rest(arguments[-1])


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
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
