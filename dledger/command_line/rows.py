"""Prints rows to a terminal, a pipe, or as JSON.

The library for tables takes a while to load, and a server that starts draws none: it is loaded
where a table is drawn.
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

# The width for a file or another program, which must get whole lines.
PIPE_COLUMNS: Final = 1_000


def say(line: str) -> bool:
    """Print a line; return False if the reader of the output has closed it, as `head` does.

    Control characters are escaped for a terminal. After False all output goes to /dev/null, so that
    the interpreter does not fail at its end.
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
    for line in lines:
        if not say(line):
            return


def print_json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    say_each(map(json.dumps, rows))


def table_console() -> Console:
    """Return the console for tables: as wide as the terminal, and in a pipe in full width."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_COLUMNS
    return console


def fits(table: Table, console: Console) -> bool:
    """Return whether a table fits on the console without wrapping or cutting a column."""
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
    """Make a table with columns of words at the left, and columns of figures at the right.

    Args:
        columns: the titles.
        rows: the cells.
        words: the columns of words.
        styles: a style for each row.
        box: its lines, as rich names them.
        no_wrap: whether a cell has one line.
        overflow: how a word without room is shown.
        look: more arguments of rich's Table.
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
        # Text, because rich would read brackets in a plain string as marks of styles.
        shown = [shown_on(sys.stdout, str(cell)) for cell in row]
        table.add_row(*map(Text, shown), style=style)
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
        rows: the values. None is shown as "-", and a fraction with two digits.
        words: the columns of words, at the left; None for all columns.
        pipe_title: the lines above the rows in a pipe, if there are any.
        look: arguments of `new_table`.
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
    return f"{value:.2f}" if isinstance(value, float) else str(value)
