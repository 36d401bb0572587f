"""Prints tables to a terminal, a pipe or a page."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from bench.summary import TEXT_COLUMNS, Rows, markdown


def show_tables(tables: Sequence[Rows], how: str) -> None:
    """Print all; plain lines in a pipe, or where the terminal is too narrow."""
    console = Console()
    for rows in tables:
        table = _table(rows)
        needed = Measurement.get(console, console.options, table).minimum
        if console.is_terminal and needed <= console.width:
            console.print(table)
        else:  # cut cells would say nothing
            print(f"{rows.title}\n\n{markdown(rows)}\n")
    if tables:
        console.print(how, markup=False, soft_wrap=not console.is_terminal)


def _table(rows: Rows) -> Table:
    table = Table(title=rows.title)
    for name in rows.columns:
        left = name in TEXT_COLUMNS
        table.add_column(name, justify="left" if left else "right", no_wrap=not left)
    previous = None
    for cells in rows.cells:
        if previous not in (None, cells[0]):
            table.add_section()
        previous = cells[0]
        table.add_row(*cells)
    return table


def markdown_report(lines: Sequence[str], tables: Sequence[Rows]) -> str:
    """The content of a page: the lines about all tables, then each table."""
    parts = [*lines, *(f"### {rows.title.capitalize()}\n\n{markdown(rows)}" for rows in tables)]
    return "\n\n".join(parts) + "\n"
