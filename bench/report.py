"""The report of a benchmark: progress on standard error, tables, a page, and JSON."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from bench.machine import this_machine
from bench.summary import TEXT_COLUMNS, Rows, markdown


class Report:
    """The report of one command.

    Args:
        folder: on the disk to measure; made if missing.

    Attributes:
        machine: the machine, before the runs.
        notes: failures, and systems that were left out.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.machine = this_machine(folder)
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Add a note, and print it at once."""
        self.notes.append(text)
        tell(text)

    @contextmanager
    def run_folder(self) -> Iterator[Path]:
        """Make a folder for the data of all runs, removed at the end. Ctrl-C ends the block."""
        base = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder)).absolute()
        try:
            yield base
        except KeyboardInterrupt:
            self.notes.append("stopped before the end")
        finally:
            shutil.rmtree(base, ignore_errors=True)

    def keep(self, path: Path | None, figures: Mapping[str, object]) -> None:
        """Write figures and the machine as JSON, if a path was given."""
        if path is not None:
            content = {"machine": asdict(self.machine), **figures}
            path.write_text(json.dumps(content, indent=1) + "\n")

    def write_page(self, path: Path | None, lines: Sequence[str], tables: Sequence[Rows]) -> None:
        """Write a page, if a path was given: machine, lines, notes, then each table."""
        if path is not None:
            shown = [f"### {rows.title.capitalize()}\n\n{markdown(rows)}" for rows in tables]
            parts = [f"{self.machine.in_words()}.", *lines, *self.notes, *shown]
            path.write_text("\n\n".join(parts) + "\n")


def tell(line: str) -> None:
    """Print progress."""
    print(line, file=sys.stderr, flush=True)


def show_tables(tables: Sequence[Rows], how: str = "") -> None:
    """Print tables; as Markdown in a pipe, or where the terminal is too narrow."""
    console = Console()
    for rows in tables:
        table = _table(rows)
        needed = Measurement.get(console, console.options, table).minimum
        if console.is_terminal and needed <= console.width:
            console.print(table)
        else:  # cut cells would say nothing
            print(f"{rows.title}\n\n{markdown(rows)}\n")
    if tables and how:
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
