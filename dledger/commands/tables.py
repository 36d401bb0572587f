"""Prints tables: as wide as the terminal, and in a pipe in full width.

Importing this module loads the library that draws tables, which takes a while: commands import it
only when they draw.
"""

from __future__ import annotations

import os

from rich.console import Console
from rich.table import Table

# The width for a file or another program, where nothing must be cut.
PIPE_COLUMNS = 1_000


def table_console() -> Console:
    """Return the console for tables."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_COLUMNS
    return console


def fits(table: Table, console: Console) -> bool:
    """Whether a table fits on the console without wrapping or cutting a column."""
    options = console.options.update(width=PIPE_COLUMNS)
    return console.measure(table, options=options).maximum <= console.width
