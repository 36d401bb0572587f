"""What the parts of a page are made of: headings, lines, tables, bars, legends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from dledger_spark.report.markup import child, number
from dledger_spark.report.quantity import cut

# Names of topics, groups and keys come from clients: some fill a page.
NAME_LETTERS_MAX: Final = 80


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: what it says.
        kind: `text`, `number` or `when`.
    """

    name: str
    kind: str = "number"


class Bar(NamedTuple):
    """A row of bars.

    Attributes:
        name: what it is about.
        parts: how long each part is, and the class that colours it.
        figure: what is written behind it.
    """

    name: str
    parts: Sequence[tuple[float, str]]
    figure: str


def section(body: Element, anchor: str, title: str) -> Element:
    """A part of the page, with a heading that can be linked to."""
    part = child(body, "section", id=anchor)
    child(part, "h2", title)
    return part


def note(parent: Element, text: str) -> None:
    """A line that explains."""
    child(parent, "p", text, class_="soft")


def table(
    parent: Element,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    keys: Sequence[str] = (),
) -> None:
    """A table of texts.

    Args:
        parent: below which.
        columns: from left to right.
        rows: one text for each column; a long one is cut, and shown whole over it.
        keys: the classes that colour a key before each row, if it has any.
    """
    made = child(child(parent, "div", class_="table"), "table")
    head = child(child(made, "thead"), "tr")
    for column in columns:
        child(head, "th", column.name, class_=column.kind)
    inside = child(made, "tbody")
    for at, row in enumerate(rows):
        line = child(inside, "tr")
        for column, text in zip(columns, row, strict=True):
            is_keyed = bool(keys) and column is columns[0]
            cell = child(line, "td", class_=f"{column.kind} keyed" if is_keyed else column.kind)
            if is_keyed:
                child(cell, "i", class_=f"key {keys[at]}")
            named(cell, text)


def bars(parent: Element, rows: Sequence[Bar], most: float) -> None:
    """Rows of bars; one of length `most` is as long as there is room."""
    made = child(parent, "div", class_="bars")
    for row in rows:
        named(child(made, "span", class_="name"), row.name)
        track = child(made, "span", class_="track")
        for length, class_ in row.parts:
            if length > 0:
                width = number(max(0.2, 100 * length / most))
                child(track, "i", class_=class_, style=f"width:{width}%")
        child(made, "span", row.figure, class_="figure")


def legend(parent: Element, words: Sequence[tuple[str, str]]) -> None:
    """What colours mean: pairs of a class and a text."""
    line = child(parent, "p", class_="legend")
    for class_, text in words:
        word = child(line, "span", class_="word")
        child(word, "i", class_=f"key {class_}")
        named(word, text)
        word.tail = " "


def named(parent: Element, text: str) -> None:
    """A name, cut if it is long; the whole one shows over it."""
    short = cut(text, NAME_LETTERS_MAX)
    if short == text:
        child(parent, "span", text)
    else:
        child(parent, "span", short, title=cut(text, 20 * NAME_LETTERS_MAX))
