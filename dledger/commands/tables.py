"""Tables for people: as wide as the terminal, and in a pipe as wide as they are.

Importing this loads what draws tables, which takes a while: commands do so when they draw.
"""

from __future__ import annotations

import os

from rich.console import Console
from rich.table import Table

# Of a table that goes to a file or another program, where nothing must be cut.
PIPE_COLUMNS = 1_000


def table_console() -> Console:
    """Where to print tables."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_COLUMNS
    return console


def fits(table: Table, console: Console) -> bool:
    """Whether a table whose columns do not wrap has room there, with nothing cut."""
    options = console.options.update(width=PIPE_COLUMNS)
    return console.measure(table, options=options).maximum <= console.width
