"""Rows as a terminal, a pipe and JSON want them.

Loading the library that draws tables takes a while, and a server that starts draws none: it is
loaded where a table is drawn.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import click

from dledger.shown_output import shown_on

if TYPE_CHECKING:
    from rich.console import Console, OverflowMethod
    from rich.table import Table

# The width for a file or another program, where nothing must be cut.
PIPE_COLUMNS: Final = 1_000


def say(line: str) -> bool:
    """Print a line; False if the reader of the output has closed it, as `head` does.

    A terminal is sent no control characters of users. What is printed after that goes nowhere, so
    that the interpreter does not fail at its end.
    """
    try:
        click.echo(shown_on(sys.stdout, line))
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return False
    return True


def say_each(lines: Iterable[str]) -> None:
    """Print lines, until there are no more or the reader of the output closes it."""
    for line in lines:
        if not say(line):
            return


def print_json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a JSON object a line."""
    say_each(map(json.dumps, rows))


def table_console() -> Console:
    """The console for tables: as wide as the terminal, and in a pipe in full width."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_COLUMNS
    return console


def fits(table: Table, console: Console) -> bool:
    """Whether a table fits on the console without wrapping or cutting a column."""
    options = console.options.update(width=PIPE_COLUMNS)
    return console.measure(table, options=options).maximum <= console.width


def new_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    words: Iterable[str],
    *,
    styles: Iterable[str | None] = (),
    box: str = "HEAVY_HEAD",
    no_wrap: bool = True,
    overflow: OverflowMethod = "ellipsis",
    **look: Any,
) -> Table:
    """A table whose columns of words stand at the left, and those of figures at the right.

    Args:
        columns: the titles.
        rows: the cells.
        words: the columns of words.
        styles: a style for each row.
        box: its lines, as rich names them.
        no_wrap: whether a cell has one line.
        overflow: what becomes of a word that has no room.
        look: more, as of rich's Table.
    """
    from rich import box as boxes
    from rich.table import Table
    from rich.text import Text

    left = set(words)
    table = Table(box=getattr(boxes, box), **look)
    for name in columns:
        table.add_column(
            name, justify="left" if name in left else "right", no_wrap=no_wrap, overflow=overflow
        )
    for row, style in zip_longest(rows, styles):
        # A cell is a text, whatever marks of styles are in it.
        table.add_row(*[Text(str(cell)) for cell in row], style=style)
    return table


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    words: Iterable[str] | None = None,
    pipe_title: str | None = None,
    **look: Any,
) -> None:
    """Print rows: a table in a terminal, else a line a row with tabs between its values.

    Args:
        columns: the titles.
        rows: the values. Nothing known is "-", and a fraction has two digits.
        words: the columns of words, which stand at the left; all of them if it is None.
        pipe_title: the lines above the rows in a pipe, if there are any.
        look: as of `new_table`.
    """
    cells = [tuple(map(_word, row)) for row in rows]
    if sys.stdout.isatty():
        left = columns if words is None else words
        table_console().print(new_table(columns, cells, left, **look))
        return
    above = () if pipe_title is None else (pipe_title,)
    say_each([*above, *map("\t".join, cells)])


def _word(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else shown_on(sys.stdout, str(value))
