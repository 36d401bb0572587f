"""The elements of sections: headings, tables, bars."""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from dledger.pages.markup import child, number
from dledger.pages.table import Cell, Column, draw_table
from dledger_spark.report.quantity import cut

# Names of topics, groups and keys come from clients: some would fill a page.
NAME_LETTERS_MAX: Final = 80


class Bar(NamedTuple):
    """A row of bars.

    Attributes:
        parts: the length and the CSS class of each part.
        figure: the text behind it.
    """

    name: str
    parts: Sequence[tuple[float, str]]
    figure: str


def section(body: Element, anchor: str, title: str) -> Element:
    """Add a section with a heading that can be linked to."""
    part = child(body, "section", id=anchor)
    child(part, "h2", title)
    return part


def table(
    parent: Element,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    keys: Sequence[str] = (),
) -> None:
    """Draw a table of texts; a long text is cut, and shown whole over it.

    `keys` are the CSS classes of the coloured keys before the rows, if they have any.
    """
    cells: list[list[Cell]] = [[partial(named, text=text) for text in row] for row in rows]
    for row, key, (first, *_) in zip(cells, keys, rows, strict=False):
        row[0] = partial(_keyed, key=key, text=first)
    draw_table(parent, columns, cells)


def _keyed(cell: Element, key: str, text: str) -> None:
    cell.set("class", f"{cell.get('class')} keyed")
    child(cell, "i", class_=f"key {key}")
    named(cell, text)


def bars(parent: Element, rows: Sequence[Bar], most: float) -> None:
    """Draw rows of bars; one of length `most` fills the width."""
    made = child(parent, "div", class_="bars")
    for row in rows:
        named(child(made, "span", class_="name"), row.name)
        track = child(made, "span", class_="track")
        for length, class_ in row.parts:
            if length > 0:
                width = number(max(0.2, 100 * length / most))
                child(track, "i", class_=class_, style=f"width:{width}%")
        child(made, "span", row.figure, class_="figure")


def named(parent: Element, text: str) -> None:
    """Add a name, cut if it is long; the whole one shows over it."""
    short = cut(text, NAME_LETTERS_MAX)
    if short == text:
        child(parent, "span", text)
    else:
        child(parent, "span", short, title=cut(text, 20 * NAME_LETTERS_MAX))
