"""Tables of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias
from xml.etree.ElementTree import Element

from dledger.pages.markup import child

# A text, or a function that fills the cell.
Cell: TypeAlias = str | Callable[[Element], object]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: its title.
        kind: the class of its cells: `number`, `text`, or another of the page's style.
    """

    name: str
    kind: str = "number"


def draw_table(parent: Element, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
    made = child(child(parent, "div", class_="table"), "table")
    head = child(child(made, "thead"), "tr")
    for column in columns:
        child(head, "th", column.name, class_=column.kind)
    inside = child(made, "tbody")
    for row in rows:
        line = child(inside, "tr")
        for column, cell in zip(columns, row, strict=True):
            drawn = child(line, "td", cell if isinstance(cell, str) else None, class_=column.kind)
            if not isinstance(cell, str):
                cell(drawn)
